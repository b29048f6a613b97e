//go:build tools

// Package kubescore names the program that checks manifests, so that go.sum covers what it is built from.
package kubescore

import _ "github.com/zegl/kube-score/cmd/kube-score"
