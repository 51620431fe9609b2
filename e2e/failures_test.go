package e2e_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

var empty = new(testgrpc.Empty)

func TestErrorOfADisabledServiceConfig(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	mustFail(t, m.dial("xds:///"+service, grpc.WithDisableServiceConfig()), "grpc.WithDisableServiceConfig")
}

func TestErrorOfAnInvalidResource(t *testing.T) {
	everyWay(t)
	directly(t, "a relay does not pass NACKs on")
	t.Parallel()
	m := newMesh(t)
	m.set(xdsmsg.DefaultListener(service, "")) // no route_config_name, hence no routes
	cc := m.dial("xds:///" + service)
	mustFail(t, cc, "Listener", `"`+service+`"`, "route_config_name", m.Addr(), t.Name())

	backend := testutils.StartBackend(t, "b1")
	m.serve(service, "cluster", backend)
	mustReach(t, cc, unary, backend)

	// An invalid update leaves the last valid one in use.
	m.set(xdsmsg.DefaultListener(service, ""))
	m.MustWait(testutils.Context(t), t, xdstest.NACKOf(xdsmsg.ListenerType))
	mustReach(t, cc, unary, backend)
}

// startCall makes an RPC that waits for ready, and returns where its error will be.
func startCall(ctx context.Context, cc *grpc.ClientConn, k kind) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := call(ctx, cc, k, grpc.WaitForReady(true))
		done <- err
	}()
	return done
}

// failOnDataErrors makes a deletion withdraw a resource in use (gRFC A88).
const failOnDataErrors = "fail_on_data_errors"

// gRFC A88, "Handling Data Errors": unless the bootstrap says otherwise, what the
// control plane deletes stays in use.
func TestDeletionFailsNoRPC(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		for _, deleted := range []struct{ what, typeURL, name string }{
			{"listener", xdsmsg.ListenerType, service},
			{"cluster", xdsmsg.ClusterType, "cluster"},
		} {
			xdstest.Parallel(t, deleted.what, func(t *testing.T) {
				m, backend := newMesh(t), testutils.StartBackend(t, "b1")
				m.serve(service, "cluster", backend)
				cc := m.dial("xds:///" + service)
				l := loadOn(t, cc, backend)
				m.Skip()
				m.Delete(t, deleted.typeURL, deleted.name)
				m.MustWait(testutils.Context(t), t, xdstest.ACKOf(deleted.typeURL))

				// When a later update is in use, the deletion has been applied.
				after := testutils.StartBackend(t, "b2")
				m.set(clusterOf("other", after))
				m.set(xdsmsg.RouteConfig(service, service,
					xdsmsg.PathRoute(unaryMethod, "cluster"), toCluster("other")))
				l.await(t, backend, after)
				l.Stop(t)
			})
		}
	})
}

// gRFC A88, resolution_note: if no endpoint can be reached, the errors of RPCs include what
// the client knows to be wrong with its configuration.
func TestErrorsIncludeFaultsOfTheConfiguration(t *testing.T) {
	directly(t, "the management server of the client is the relay, which stays reachable")
	t.Parallel()
	for _, tc := range []struct {
		name string
		// around are the resources beside the EDS cluster "c" and its endpoints.
		around []proto.Message
		// bad has errors, which texts describe, and good is the same resource without.
		bad, good proto.Message
		texts     []string
	}{
		{"Cluster", nil,
			with(xdsmsg.EDSCluster("c", ""), "lb_policy: CLUSTER_PROVIDED"), xdsmsg.EDSCluster("c", ""),
			[]string{`Cluster "c" is invalid`, "lb_policy"}},
		{"RouteConfiguration", nil,
			xdsmsg.RouteConfig(service, "", toCluster("c")), routesTo(service, "c"),
			[]string{"RouteConfiguration", "is invalid", "domains"}},
		{"aggregate Cluster", []proto.Message{routesTo(service, "a"), xdsmsg.AggregateCluster("a", "c")},
			xdsmsg.AggregateCluster("a"), xdsmsg.AggregateCluster("a", "c"),
			[]string{`Cluster "a" is invalid`, "clusters"}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.serve(service, "c", backend)
			cc := m.dialServing(tc.around)
			mustReach(t, cc, unary, backend)
			backend.Stop()
			node := []string{"connection refused", `"` + t.Name() + `"`}
			untilError(t, cc, node, "is invalid", "unreachable")

			m.set(tc.bad)
			faults := append(tc.texts, node...)
			untilError(t, cc, faults, "unreachable")
			m.Stop()
			untilError(t, cc, append(faults, "unreachable since", m.Addr()))
			m.set(tc.good)
			m.restart()
			untilError(t, cc, node, "is invalid", "unreachable")
		})
	}
}
