package xdsresource

import (
	"fmt"
	"testing"
)

// The labels csm.service_name and csm.service_namespace_name come from Cluster.metadata, and
// are "unknown" if it does not have them, as in gRPC-Go, C++ and Java.
func TestService(t *testing.T) {
	t.Parallel()
	under := func(key, fields string) string {
		return `metadata{filter_metadata{key:"` + key + `" value{` + fields + `}}}`
	}
	const name, namespace = `fields{key:"service_name" value{%s}}`, `fields{key:"service_namespace" value{%s}}`
	checkEach(t, "Service", func(t *testing.T, fields string) *Service {
		return mustDecode[Cluster](t, ClusterType, blue(t, fields)).Service
	}, rows[string, *Service]{
		{"no metadata", ``, nil},
		{"other metadata", under("other", fmt.Sprintf(name, `string_value:"s"`)), nil},
		{"both", under(telemetryMetadata, fmt.Sprintf(name+namespace, `string_value:"s"`, `string_value:"n"`)), &Service{"s", "n"}},
		{"one", under(telemetryMetadata, fmt.Sprintf(namespace, `string_value:"n"`)), &Service{"unknown", "n"}},
		{"empty strings", under(telemetryMetadata, fmt.Sprintf(name+namespace, `string_value:""`, `string_value:""`)), &Service{}},
		{"not strings", under(telemetryMetadata, fmt.Sprintf(name+namespace, `number_value:1`, `null_value:NULL_VALUE`)),
			&Service{"unknown", "unknown"}},
	})
}
