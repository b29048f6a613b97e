//go:build tools

// Package kustomizecontroller names the program that tests of GitOps run, so that go.sum covers what it is built from.
package kustomizecontroller

import _ "github.com/fluxcd/kustomize-controller"
