package dpdswrapper_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// runs numbers the bootstraps of tests (-count), which share a log.
var runs atomic.Int64

// TestWarnings: a server that would be asked without the constraints is named, as an access rule must
// not fail open in silence. An input is a bootstrap, in which names of servers stand for them: "able" takes constraints, "plain" does not.
// Sets of shards that the program constrains may follow; they are worth a warning the first time.
func TestWarnings(t *testing.T) {
	t.Parallel()
	servers := strings.NewReplacer(
		"<able>", `{"server_uri": "able", "channel_creds": [{"type": "insecure"}], "server_features": ["dynamic_parameter_constraints"]}`,
		"<plain>", `{"server_uri": "plain", "channel_creds": [{"type": "insecure"}]}`,
		"<own>", `{"`+listenerType+`": {"key_constraints": {"k": {"constraints": [{"value": "v"}]}}}}`)
	golden.Cases(t, "testdata/warnings.txt", func(_, input string) string {
		lines := strings.Split(servers.Replace(input), "\n")
		source := fmt.Sprintf("run %d of warnings", runs.Add(1))
		w := dpdswrapper.New(newFakeClient(t, must(bootstrap.Parse(source, []byte(lines[0])))))
		for _, line := range lines[1:] {
			w.SetConstraints(constraints(strings.Fields(line)))
		}
		return strings.Join(logged.After("xDS bootstrap "+source+": "), "\n")
	})
}
