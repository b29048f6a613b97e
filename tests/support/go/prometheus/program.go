//go:build tools

// Package prometheus names the programs that tests run, so that go.sum covers what they are built from.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
