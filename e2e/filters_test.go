package e2e_test

import (
	"context"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// serveFilters configures the service with one backend behind filters. Each of
// the overrides is the route's, by the name of the instance.
func (m *mesh) serveFilters(backend *testutils.Backend, overrides map[string]proto.Message, filters ...*hcmpb.HttpFilter) {
	m.t.Helper()
	route := toCluster(backend.ID())
	route.TypedPerFilterConfig = map[string]*anypb.Any{}
	for name, config := range overrides {
		route.TypedPerFilterConfig[name] = xdsmsg.Any(config)
	}
	m.set(clusterOf(backend.ID(), backend),
		xdsmsg.DefaultListener(service, service, filters...),
		xdsmsg.RouteConfig(service, service, route))
}

func abortWith(code codes.Code) *faultpb.HTTPFault {
	return with(new(faultpb.HTTPFault), `abort { grpc_status: %d percentage { numerator: 100 } }`, code)
}

// The filter for faults delays and aborts RPCs, as its configuration or their headers ask (gRFC A33).
func TestFaultEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for _, test := range []struct {
		name      string
		config    proto.Message
		overrides map[string]proto.Message
		md        []string
		timeout   time.Duration
		want      codes.Code
	}{
		{name: "abort", config: abortWith(codes.DataLoss), want: codes.DataLoss},
		{name: "override of the route", config: new(faultpb.HTTPFault), overrides: map[string]proto.Message{"fault": abortWith(codes.Aborted)}, want: codes.Aborted},
		{name: "disabled by the route", config: abortWith(codes.DataLoss), overrides: map[string]proto.Message{"fault": &routepb.FilterConfig{Disabled: true}}, want: codes.OK},
		{name: "headers ask for a delay past the deadline", config: with(new(faultpb.HTTPFault), `delay { header_delay {} percentage { numerator: 100 } }`),
			md: []string{"x-envoy-fault-delay-request", "3600000"}, timeout: 50 * time.Millisecond, want: codes.DeadlineExceeded},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			m.serveFilters(backend, test.overrides, xdsmsg.Filter("fault", test.config))
			cc := m.dial("xds:///" + service)
			cc.Connect()
			eachKind(t, func(t *testing.T, k kind) {
				ctx := testutils.Context(t)
				if test.timeout > 0 {
					short, cancel := context.WithTimeout(ctx, test.timeout)
					defer cancel()
					ctx = short
				}
				r := callFor(metadata.AppendToOutgoingContext(ctx, test.md...), cc, k)
				if test.want != codes.OK {
					checkStatus(t, r.err, test.want)
				} else if r.err != nil {
					t.Error(r.err)
				}
			})
		})
	}
}
