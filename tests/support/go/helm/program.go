//go:build tools

// Package helm names the program that tests of the chart run, so that go.sum covers what it is built from.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
