package e2e_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Worked examples of xRFC TP2 (2021-08), by heading, from the control plane's
// variants to the backend that answers an RPC. xdsclient/dynparam/testdata/cases.txt and testutils/testdata/tp2.txt have the others.

// TP2, "xDS Minor/Patch Version Negotiation": of the variants that a client supports it
// gets the newest.
func TestTP2VersionNegotiation(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newVariantMesh(t)
	all := m.clustersFor("without", "with")
	m.set(xdsmsg.DefaultListener(service, "routes"))
	for patch := range 6 {
		content := map[bool]string{false: "without", true: "with"}[patch == 5]
		m.SetVariant(t, map[string]string{"xds.version.patch": fmt.Sprint(patch)}, routesTo("routes", content))
	}
	for newest, want := range map[int]*testutils.Backend{0: all[0], 3: all[0], 4: all[0], 5: all[1], 9: all[1]} {
		versions := map[string]any{"constraints": []any{
			map[string]any{"integer_range_list": map[string]any{"range": []any{map[string]any{"min_value": 0, "max_value": newest}}}},
		}}
		cc := dialWith(t, "xds:///"+service, m.as(fmt.Sprint(t.Name(), newest), testutils.TopLevel("dynamic_parameter_constraints", map[string]any{
			"envoy.config.route.v3.RouteConfiguration": map[string]any{"key_constraints": map[string]any{"xds.version.patch": versions}},
		})))
		mustReach(t, cc, unary, want)
	}
	m.checkNoAmbiguousChoice()
}

// TP2, "Selecting Cluster Based on ACL": one client may go to the endpoints directly,
// the other one goes through the proxy. A client that is removed from the list moves, and
// resources for others are denied.
func TestTP2SelectingClusterBasedOnACL(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m := newVariantMesh(t)
		all := m.clustersFor("direct", "proxy")
		direct, proxy := all[0], all[1]
		secret, secretRoutes := in(tp2, xdsmsg.ListenerType, "secret"), in(tp2, xdsmsg.RouteType, "secret")
		m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes), xdsmsg.DefaultListener(secret, secretRoutes))
		m.SetVariant(t, map[string]string{"use_proxy": "false"}, routesTo(tp2Routes, "direct"))
		m.SetVariant(t, map[string]string{"use_proxy": "true"}, routesTo(tp2Routes, "proxy"))
		m.SetVariant(t, map[string]string{"use_proxy": "false"}, xdsmsg.RouteConfig(secretRoutes, "secret", toCluster("direct")))
		m.Update(t, func(tx *controlplane.Tx) {
			tx.SetVariantError(xdsmsg.RouteType, secretRoutes, map[string]string{"use_proxy": "true"}, status.New(codes.PermissionDenied, "not for guests"))
		})
		var revoked atomic.Bool
		m.SetDPDS(t, dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
			return constrain(t, xdsmsg.RouteType, is("use_proxy", fmt.Sprint(revoked.Load() || node.GetId() != "friend"))), nil
		})

		friend, guest := m.as("friend", withDPDS()), m.as("guest", withDPDS())
		toDirect, toProxy := dialWith(t, tp2Target, friend), dialWith(t, tp2Target, guest)
		mustReach(t, toDirect, unary, direct)
		mustReach(t, toProxy, unary, proxy)
		mustReach(t, dialWith(t, "xds://"+tp2+"/secret", friend), unary, direct)
		mustFail(t, dialWith(t, "xds://"+tp2+"/secret", guest), secretRoutes, "not for guests", "PermissionDenied")

		l, other := startLoad(t, toDirect), startLoad(t, toProxy)
		revoked.Store(true)
		m.Store().RefreshDPDS(dpdsName, func(node *corepb.Node) bool { return node.GetId() == "friend" })
		l.await(t, proxy)
		l.Stop(t)
		other.Stop(t)
	})
}

// TP2, "Matching Ambiguity", the expected order of changes, under load: no RPC fails in
// any of the four steps.
func TestTP2TransitionInFourSteps(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		m := newVariantMesh(t)
		m.set(xdsmsg.DefaultListener(service, "routes"))
		all := m.clustersFor("prod", "prod v1", "prod v2", "test", "test v1", "test v2")
		for _, env := range []string{"prod", "test"} {
			m.SetVariant(t, map[string]string{"env": env}, routesTo("routes", env))
		}
		bootstrap := m.bootstrap()
		constrainChannels(t, bootstrap, constrain(t, xdsmsg.RouteType, is("env", "prod")))
		cc := dialWith(t, "xds:///"+service, bootstrap)
		l := loadOn(t, cc, all[0])

		// 1. Clients send version=v1, which no variant has.
		v1 := constrain(t, xdsmsg.RouteType, is("env", "prod"), is("version", "v1"))
		constrainChannels(t, bootstrap, v1)
		m.awaitLocator(xdsmsg.RouteType, "routes", v1)
		l.await(t, all[0])

		// 2. All existing resources get version=v1.
		for _, env := range []string{"prod", "test"} {
			m.Update(t, func(tx *controlplane.Tx) {
				tx.DeleteVariant(xdsmsg.RouteType, "routes", map[string]string{"env": env})
				tx.SetVariant(map[string]string{"env": env, "version": "v1"}, routesTo("routes", env+" v1"))
			})
		}
		l.await(t, all[1])

		// 3. There are variants with version=v2.
		for _, env := range []string{"prod", "test"} {
			m.SetVariant(t, map[string]string{"env": env, "version": "v2"}, routesTo("routes", env+" v2"))
		}
		l.await(t, all[1])

		// 4. The client sends version=v2.
		constrainChannels(t, bootstrap, constrain(t, xdsmsg.RouteType, is("env", "prod"), is("version", "v2")))
		l.await(t, all[2])
		l.Stop(t)
		m.checkNoAmbiguousChoice()
	})
}
