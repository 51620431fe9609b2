package bootstrap

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// TP2, "Migrating From Node Metadata": "if the node metadata contains the entry env=prod,
// this would be translated". What the document spells out wins.
func TestMigratingFromNodeMetadata(t *testing.T) {
	t.Parallel()
	const unconstrained = `"node": {"metadata": {"env": "prod", "zone": "z1"}}, "node_metadata_constraints": `
	none := mustParse(t, `{`+servers+`, `+unconstrained+`[]}`).Fingerprint()
	for _, test := range []struct{ given, keys, listeners, clusters string }{
		{"the text's entry", `["env"]`, "{env=prod}", "{env=prod}"},
		{"two entries", `["env", "zone"]`, "{env=prod, zone=z1}", "{env=prod, zone=z1}"},
		{"constraints that are spelled out", `["env", "zone"], "dynamic_parameter_constraints": {
			"*": {"key_constraints": {"zone": {"constraints": [{"value": "z2"}]}}},
			"envoy.config.cluster.v3.Cluster": {"key_constraints": {"env": {"constraints": [{"value": "test"}], "invert": true}}}}`,
			"{env=prod, zone=z2}", "{env!=test, zone=z2}"},
	} {
		c := mustParse(t, `{`+servers+`, `+unconstrained+test.keys+`}`)
		for name, want := range map[string]string{"envoy.config.listener.v3.Listener": test.listeners, "envoy.config.cluster.v3.Cluster": test.clusters} {
			xdstest.Equal(t, fmt.Sprintf("given %s: the constraints for %s", test.given, name),
				want, c.Constraints.For(name).String())
		}
		if c.Fingerprint() == none {
			t.Errorf("given %s: the fingerprint is that without constraints", test.given)
		}
	}
}

// Each of the keys becomes a constraint.
func TestMetadataConstraintsAreBounded(t *testing.T) {
	t.Parallel()
	metadata, keys := make(map[string]string), make([]string, 0, 129)
	for i := range 129 {
		keys = append(keys, fmt.Sprint(i))
		metadata[keys[i]] = "v"
	}
	for _, test := range []struct {
		given []string
		then  string
	}{
		{keys[:128], ""},
		{keys, "xDS bootstrap test: node_metadata_constraints: expected at most 128 keys, found 129"},
	} {
		document, err := json.Marshal(map[string]any{"node": map[string]any{"metadata": metadata}, "node_metadata_constraints": test.given})
		xdstest.NoError(t, err)
		got := ""
		if _, err := Parse("test", fmt.Appendf(nil, `{%s, %s`, servers, document[1:])); err != nil {
			got = err.Error()
		}
		xdstest.Equal(t, fmt.Sprintf("given %d keys: error", len(test.given)), test.then, got)
	}
}

// What goes beyond dynparam's limits is found here, where the key can be named.
func TestConstraintsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	const key = `"%d": {"constraints": [{"value": ""}]}`
	tests := []struct{ given, constraints, then string }{
		{"as many keys as may be", `{"*": {"key_constraints": ` + many(128, key) + `}}`, ""},
		{"one key more", `{"*": {"key_constraints": ` + many(129, key) + `}}`,
			`dynamic_parameter_constraints["*"].key_constraints: expected at most 128 keys, found 129`},
		{"as many types as may be", many(128, `"%d": {}`), ""},
		{"one type more", many(129, `"%d": {}`), `dynamic_parameter_constraints: expected at most 128 types, found 129`},
		{"a value of 64 KiB", `{"*": {"key_constraints": {"k": {"constraints": [{"value": "` + strings.Repeat("x", 64<<10) + `"}]}}}}`,
			`dynamic_parameter_constraints["*"]: expected at most 65536 bytes, found 65555`},
		{"text that is not UTF-8", `{"*": {"key_constraints": {"k": {"constraints": [{"value": "` + "\xff" + `"}]}}}}`,
			`dynamic_parameter_constraints["*"]: expected UTF-8, found other bytes`},
	}
	for _, test := range tests {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			_, err := Parse("test", []byte(`{`+servers+`, "dynamic_parameter_constraints": `+test.constraints+`}`))
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "xDS bootstrap test: ")
			}
			xdstest.Equal(t, "error", test.then, got)
		})
	}
}
