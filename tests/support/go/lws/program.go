//go:build tools

// Package lws names the controller of LeaderWorkerSets that tests run, so that go.sum covers what it is built from.
package lws

import _ "sigs.k8s.io/lws/cmd"
