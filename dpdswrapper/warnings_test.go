package dpdswrapper_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// runs numbers the runs of tests (-count), which share a log.
var runs atomic.Int64

// warns checks that there are n warnings with all of the texts.
func warns(t *testing.T, n int, texts ...string) {
	t.Helper()
	if got := logged.Count(texts...); got != n {
		t.Errorf("there are %d warnings with %q, want %d", got, texts, n)
	}
}

func serverEntry(uri string, features ...string) string {
	return fmt.Sprintf(`{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["%s"]}`, uri, strings.Join(features, `", "`))
}

// A server that would be asked without the constraints is named, as an access rule must
// not fail open in silence.
func TestWarningOfServersWithoutConstraints(t *testing.T) {
	t.Parallel()
	const feature = "dynamic_parameter_constraints"
	able, plain := serverEntry("able", feature), serverEntry("plain")
	const dpds = `"dynamic_parameter_constraints_resource": "dpds"`
	const own = `"dynamic_parameter_constraints": {"` + listenerType + `": {"key_constraints": {"k": {"constraints": [{"value": "v"}]}}}}`
	for _, test := range []struct {
		given, text string
		want        []string
	}{
		{"all servers take DPDS", `{"xds_servers": [` + able + `], "authorities": {"a": {` + dpds + `}}}`, nil},
		{"one does not", `{"xds_servers": [` + able + `, ` + plain + `], "authorities": {"a": {` + dpds + `}}}`,
			[]string{`authority "a"`, "plain", `DPDS resource "dpds"`, feature}},
		{"all servers take constraints", `{"xds_servers": [` + able + `], ` + own + `}`, nil},
		{"none does", `{"xds_servers": [` + plain + `], ` + own + `}`, []string{"plain", "dynamic_parameter_constraints", "server_features"}},
		{"none does, of an authority", `{"xds_servers": [` + able + `], "authorities": {"b": {"xds_servers": [` + plain + `]}}, ` + own + `}`,
			[]string{`authority "b"`, "plain", "server_features"}},
		{"nor those translated from metadata", `{"xds_servers": [` + plain + `], "node": {"metadata": {"env": "prod"}}, "node_metadata_constraints": ["env"]}`,
			[]string{"plain", "node_metadata_constraints", "server_features"}},
		{"there are no constraints", `{"xds_servers": [` + plain + `]}`, nil},
		{"a type that may be the program's", `{"xds_servers": [` + able + `], "dynamic_parameter_constraints": {"acme.v1.Thing": {"key_constraints": {"k": {"constraints": [{"value": "v"}]}}}}}`,
			[]string{`"acme.v1.Thing"`, "ResourceType"}},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			source := fmt.Sprintf("%s-%d", t.Name(), runs.Add(1))
			dpdswrapper.New(newFakeClient(t, must(bootstrap.Parse(source, []byte(test.text)))))
			n := min(len(test.want), 1)
			warns(t, n, append(test.want, "xDS bootstrap "+source+":")...)
			warns(t, n, "xDS bootstrap "+source+":")
		})
	}
}

// Constraints that the program sets, and no server takes, are worth a warning too: the first time, and not for
// each new set of shards.
func TestWarningOfConstraintsOfTheProgram(t *testing.T) {
	t.Parallel()
	able, plain := serverEntry("able", "dynamic_parameter_constraints"), serverEntry("plain")
	for given, test := range map[string]struct {
		text string
		want []string
	}{
		"a server takes them":         {`{"xds_servers": [` + plain + `, ` + able + `]}`, nil},
		"none does":                   {`{"xds_servers": [` + plain + `]}`, []string{"old-style names", "plain", "server_features", "SetConstraints"}},
		"none does, of one authority": {`{"xds_servers": [` + able + `], "authorities": {"b": {"xds_servers": [` + plain + `]}}}`, []string{`authority "b"`, "SetConstraints"}},
	} {
		xdstest.Parallel(t, given, func(t *testing.T) {
			source := fmt.Sprintf("%s-%d:", t.Name(), runs.Add(1))
			w := dpdswrapper.New(newFakeClient(t, must(bootstrap.Parse(source, []byte(test.text)))))
			w.SetConstraints(dynparam.ByType{})
			warns(t, 0, source)
			for _, shard := range []string{"1", "2"} {
				w.SetConstraints(only(clusterType, "shard", shard))
				warns(t, min(len(test.want), 1), append(test.want, source)...)
				warns(t, min(len(test.want), 1), source)
			}
		})
	}
}
