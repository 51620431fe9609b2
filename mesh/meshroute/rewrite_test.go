package meshroute

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// TestPaths has rules for the service s that rewrite paths, or redirect RPCs to others, and RPCs by their paths. Behind them is what becomes of each
// by the routes that dynxds has.
func TestPaths(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/paths.txt", func(_, input string) string {
		rule, paths, _ := strings.Cut(input, "\n")
		in := Input{Policies: policytest.Parse(t, "f", policytest.Text("    - "+rule+"\n")), Services: services("s", "new")}
		host := hostFor(t, mustBuild(t, in, nil).Routes(Client{}, "s"))
		var said strings.Builder
		for _, path := range strings.Fields(paths) {
			rpc := matching.RPC{Method: path, Authority: "host:80"}
			route := host.Route(rpc)
			if redirect, ok := route.Action.(*xdsresource.Redirect); ok {
				fmt.Fprintf(&said, "%s: %d %s\n", path, redirect.HTTPStatus, redirect.Location(&route.Match, &rpc))
			} else if clusterOf(t, route) != "new" {
				fmt.Fprintf(&said, "%s: no match\n", path)
			} else if result, valid := route.RewritePath(path); valid {
				fmt.Fprintf(&said, "%s: %s\n", path, result)
			}
		}
		return said.String()
	})
}

func segments(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
