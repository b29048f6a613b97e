module promptgroup.dev/tests/prometheus

go 1.26.8

require github.com/prometheus/prometheus v0.315.0
exclude github.com/linode/linodego v1.0.0
exclude (
	github.com/grpc-ecosystem/grpc-gateway v1.14.7
	google.golang.org/api v0.30.0
)
replace cloud.google.com/go => cloud.google.com/go v0.123.0
