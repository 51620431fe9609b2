package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

func headerRoute(name, value, cluster string) *routepb.Route {
	return with(toCluster(cluster), `match { headers { name: %q string_match { exact: %q } } }`, name, value)
}

// While new routes wait for their clusters, RPCs take those of before, and the explanation says so.
func TestExplainWhileRoutesWait(t *testing.T) {
	t.Parallel()
	m, service := newMesh(t), ownService(t)
	before := testutils.StartBackend(t, "before")
	m.keepSilent()
	m.serve(service, "c-"+service, before)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, before)
	ask := func() *explain.Explanation {
		e, err := explain.InProcess(testutils.Context(t), explain.Request{Target: "xds:///" + service, Method: unaryMethod})
		xdstest.NoError(t, err)
		return e
	}
	silent := "silent-" + service
	for resource, routes := range map[string]proto.Message{
		"cluster":            xdsmsg.RouteConfig(service, service, toCluster(silent)),
		"RouteConfiguration": xdsmsg.DefaultListener(service, silent),
	} {
		m.set(chain(service, toCluster("c-"+service)), routes)
		want := fmt.Sprintf("RPCs take the routes of before until there is an answer for %s %q", resource, silent)
		e := awaitInspect(t, want, ask, func(e *explain.Explanation) bool { return e.Pending != "" })
		if e.Pending != want || !strings.HasPrefix(e.Outcome, want+"; then: ") || e.Code != "" || !strings.Contains(e.Text(), "outcome      "+want+"\nthen  ") {
			t.Errorf("outcome %q with code %q:\n%s", e.Outcome, e.Code, e.Text())
		}
		m.set(chain(service, toCluster("c-"+service)))
		awaitInspect(t, "no routes wait", ask, func(e *explain.Explanation) bool { return e.Pending == "" })
		mustReach(t, cc, unary, before)
	}
}
