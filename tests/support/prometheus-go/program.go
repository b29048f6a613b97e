//go:build tools

// Package prometheus names the program that tests ask, so that go.sum covers what it is built from.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"
