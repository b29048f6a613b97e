//go:build tools

// Package actionlint names the program that checks workflows, so that go.sum covers what it is built from.
package actionlint

import _ "github.com/rhysd/actionlint/cmd/actionlint"
