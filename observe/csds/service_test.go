package csds_test

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tokenpb "github.com/envoyproxy/go-control-plane/envoy/extensions/grpc_service/call_credentials/access_token/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A40, "Generated Node Information" and "ADS Parsing Logic Update", and client_scope: what the management server sees of the
// client, and who uses it. What becomes of a resource is tested in package xdsclient.
func TestClientConfig(t *testing.T) {
	t.Parallel()
	started := time.Now()
	service, server, client := start(t)
	server.Set(t, cluster("used", "one"), cluster("later bad", "one"), cluster("bad", "bad: no good"))
	watch(t, client, "used", "bad", "later bad")
	until(t, service, "bad NACKED", "later bad ACKED 1", "used ACKED 1")
	server.Set(t, cluster("later bad", "bad: nor that"))
	until(t, service, "bad NACKED", "later bad NACKED 1", "used ACKED 2")
	detach := client.Attach("xds:///two", nil)
	defer client.Attach("xds:///one", nil)()
	defer client.Attach("xds:///one", nil)()
	get := func(req *statusv3.ClientStatusRequest) *statusv3.ClientConfig {
		return of(fetch(t, service, req), t.Name())
	}

	got := get(&statusv3.ClientStatusRequest{})
	const acked, nacked = adminv3.ClientResourceStatus_ACKED, adminv3.ClientResourceStatus_NACKED
	want := &statusv3.ClientConfig{
		Node: client.Bootstrap().Node, ClientScope: "xds:///one, xds:///two",
		GenericXdsConfigs: []*statusv3.ClientConfig_GenericXdsConfig{
			{TypeUrl: clusterURL, Name: "bad", ClientStatus: nacked, ErrorState: &adminv3.UpdateFailureState{VersionInfo: "2"}},
			{
				TypeUrl: clusterURL, Name: "later bad", ClientStatus: nacked, VersionInfo: "1", XdsConfig: xdsmsg.Any(cluster("later bad", "one")),
				ErrorState: &adminv3.UpdateFailureState{VersionInfo: "2"},
			},
			{TypeUrl: clusterURL, Name: "used", ClientStatus: acked, VersionInfo: "2", XdsConfig: xdsmsg.Any(cluster("used", "one"))},
		},
	}
	entries := got.GetGenericXdsConfigs()
	for i, details := range []string{"no good", "nor that", ""} {
		if fault := entries[i].GetErrorState(); !strings.Contains(fault.GetDetails(), details) {
			t.Errorf("the error of %s is %v, want %q in it", entries[i].GetName(), fault, details)
		}
		for _, at := range []*timestamppb.Timestamp{entries[i].GetLastUpdated(), entries[i].GetErrorState().GetLastUpdateAttempt()} {
			if at != nil && (at.AsTime().Before(started) || at.AsTime().After(time.Now())) {
				t.Errorf("%s has the time %v, want one since %v", entries[i].GetName(), at.AsTime(), started)
			}
		}
	}
	if entries[0].GetLastUpdated() != nil || entries[1].GetLastUpdated() == nil || entries[1].GetErrorState().GetLastUpdateAttempt() == nil {
		t.Errorf("the times are those of %v", entries)
	}
	ignored := []gocmp.Option{
		protocmp.Transform(), protocmp.IgnoreFields(&statusv3.ClientConfig_GenericXdsConfig{}, "last_updated"),
		protocmp.IgnoreFields(&adminv3.UpdateFailureState{}, "last_update_attempt", "details"),
	}
	xdstest.Equal(t, "the client", want, got, ignored...)

	detach()
	want.ClientScope = "xds:///one"
	for _, e := range want.GetGenericXdsConfigs() {
		e.XdsConfig = nil
	}
	got = get(&statusv3.ClientStatusRequest{ExcludeResourceContents: true})
	xdstest.Equal(t, "without contents, after a channel was closed", want, got, ignored...)
}

// protojson copies a message in an Any once for each Any that it is in: 4,000 levels took 0.9 GB.
// The test runs alone, as it counts the bytes that the process allocates.
func TestResourceOfAnysWithoutEndIsCheapToPrint(t *testing.T) {
	nested := func(name string, levels int) *clusterv3.Cluster {
		inner := &anypb.Any{}
		for range levels {
			next, err := anypb.New(inner)
			xdstest.NoError(t, err)
			inner = next
		}
		c := cluster(name, "one")
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"x": inner}
		return c
	}
	service, server, client := start(t)
	deep, shallow := nested("deep", 2000), nested("shallow", 20)
	token := func(text string) map[string]*anypb.Any {
		return map[string]*anypb.Any{"x": xdsmsg.Any(&tokenpb.AccessTokenCredentials{Token: text})}
	}
	shallow.TypedExtensionProtocolOptions = token("hunter2")
	server.Set(t, deep, shallow)
	watch(t, client, "deep", "shallow")
	until(t, service, "deep ACKED 1", "shallow ACKED 1")
	shallow.TypedExtensionProtocolOptions = token("*******")
	answer := of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name())
	for i, want := range []*clusterv3.Cluster{deep, shallow} {
		e, got, opaque := answer.GetGenericXdsConfigs()[i], new(clusterv3.Cluster), new(wrapperspb.BytesValue)
		if err := e.GetXdsConfig().UnmarshalTo(opaque); want == deep && (err != nil || proto.Unmarshal(opaque.GetValue(), got) != nil) {
			t.Fatalf("%s is a %s: %v", e.GetName(), e.GetXdsConfig().GetTypeUrl(), err)
		}
		if want == shallow {
			xdstest.NoError(t, e.GetXdsConfig().UnmarshalTo(got))
		}
		xdstest.Equal(t, e.GetName(), want, got, protocmp.Transform())
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := protojson.Marshal(answer); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if spent, size := after.TotalAlloc-before.TotalAlloc, uint64(proto.Size(answer)); spent > 100*size {
		t.Errorf("printing %d bytes allocates %d", size, spent)
	}
}

// gRFC A40, "Node Matching": INVALID_ARGUMENT for "an non-empty Node Matcher", from
// both methods.
func TestNodeMatchersAreRefused(t *testing.T) {
	t.Parallel()
	service, ctx := serve(t), testutils.Context(t)
	req := &statusv3.ClientStatusRequest{NodeMatchers: []*matcherv3.NodeMatcher{{}}}
	if _, err := service.FetchClientStatus(ctx, req); status.Code(err) != codes.InvalidArgument {
		t.Errorf("FetchClientStatus: %v, want INVALID_ARGUMENT", err)
	}
	stream, err := service.StreamClientStatus(ctx)
	xdstest.NoError(t, err)
	xdstest.NoError(t, stream.Send(req))
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("StreamClientStatus: %v, want INVALID_ARGUMENT", err)
	}
}

// gRFC A40, "Background": one answer per request; "this is not a watch-style API".
func TestStreamAnswersEachRequestOnce(t *testing.T) {
	t.Parallel()
	service, server, client := start(t)
	server.Set(t, cluster("a", "one"))
	watch(t, client, "a")
	until(t, service, "a ACKED 1")
	stream, err := service.StreamClientStatus(testutils.Context(t))
	xdstest.NoError(t, err)
	for i, want := range []string{"1", "1", "2"} {
		if want == "2" {
			server.Set(t, cluster("a", "two"))
			until(t, service, "a ACKED 2")
		}
		xdstest.NoError(t, stream.Send(&statusv3.ClientStatusRequest{}))
		resp, err := stream.Recv()
		xdstest.NoError(t, err)
		if got := of(resp, t.Name()).GetGenericXdsConfigs()[0].GetVersionInfo(); got != want {
			t.Errorf("answer %d has version %q, want %q", i, got, want)
		}
	}
	xdstest.NoError(t, stream.CloseSend())
	if resp, err := stream.Recv(); err != io.EOF {
		t.Errorf("after the last request: %v, %v, want the end of the stream", resp, err)
	}
}

// A server that has another implementation, as after admin.Register with gRPC-Go's
// xds, is an error; gRPC would end the process.
func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer()
	statusv3.RegisterClientStatusDiscoveryServiceServer(s, statusv3.UnimplementedClientStatusDiscoveryServiceServer{})
	if err := csds.Register(s); err == nil || !strings.Contains(err.Error(), "ClientStatusDiscoveryService") {
		t.Errorf("registered twice: %v, want an error that names the service", err)
	}
}
