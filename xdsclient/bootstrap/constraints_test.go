package bootstrap

import (
	"encoding/json"
	"fmt"
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
		{keys, "xDS bootstrap test: node_metadata_constraints.key_constraints: expected at most 128 keys, found 129"},
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
