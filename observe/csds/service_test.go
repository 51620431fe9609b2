package csds_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// gRFC A40, "Generated Node Information", and client_scope: what the management
// server sees of the client, and who uses it.
func TestClientConfig(t *testing.T) {
	t.Parallel()
	service, server, client := start(t)
	server.Set(t, cluster("a", "one"), cluster("b", "one"))
	watch(t, client, "b").until("one")
	watch(t, client, "a").until("one")
	detach := client.Attach("xds:///two", nil)
	defer client.Attach("xds:///one", nil)()
	defer client.Attach("xds:///one", nil)()
	get := func() *statusv3.ClientConfig {
		return of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name())
	}

	got := get()
	xdstest.Equal(t, "node", client.Bootstrap().Node, got.GetNode(), protocmp.Transform())
	if scope := got.GetClientScope(); scope != "xds:///one, xds:///two" {
		t.Errorf("client_scope is %q", scope)
	}
	var names []string
	for _, c := range got.GetGenericXdsConfigs() {
		names = append(names, c.GetName())
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the resources are %q, want a and b", names)
	}
	detach()
	if scope := get().GetClientScope(); scope != "xds:///one" {
		t.Errorf("client_scope is %q after a channel was closed", scope)
	}
}

// xRFC TP2: a name that is watched with several constraints has an entry for each, and
// a collection one for each variant of a member. The name says which, unless there are none.
func TestEntriesOfVariants(t *testing.T) {
	t.Parallel()
	const member = "xdstp://auth/envoy.config.cluster.v3.Cluster/d/"
	service, server, client := start(t, testutils.Authority("auth", "", nil),
		testutils.ServerFeatures("dynamic_parameter_constraints", "delta"))
	for _, shard := range []string{"1", "2"} {
		server.SetVariant(t, map[string]string{"shard": shard}, cluster("a", "a"+shard), cluster(member+"c", "c"+shard))
	}
	server.SetVariant(t, map[string]string{"shard": "1"}, cluster("b", "b1"))
	server.Set(t, cluster(member+"plain", "c"))
	low, high, none := constrain(t, dynparam.AtMost(1)), constrain(t, dynparam.AtLeast(2)), constrain(t, dynparam.AtLeast(3))
	watchVariant(t, client, "a", low).until("a1")
	watchVariant(t, client, "a", high).until("a2")
	watchVariant(t, client, "a", none).until("does not exist")
	watch(t, client, "b").until("b1")
	collection := &collectionWatcher{newWatcher(t)}
	t.Cleanup(client.WatchCollectionLocator(clusters, member+"*", constrain(t, dynparam.AtMost(2)), collection))
	collection.until("answered")

	got := map[string]string{}
	for _, c := range of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name()).GetGenericXdsConfigs() {
		m := new(clusterv3.Cluster)
		if err := c.GetXdsConfig().UnmarshalTo(m); c.GetXdsConfig() != nil && err != nil {
			t.Error(err)
		}
		got[c.GetName()] = c.GetClientStatus().String() + " " + m.GetAltStatName()
	}
	want := map[string]string{
		"a {shard in [0-1]}": "ACKED a1", "a {shard in [2-]}": "ACKED a2", "a {shard in [3-]}": "DOES_NOT_EXIST ",
		member + "* {shard in [0-2]}": "ACKED ", member + "c {shard=1}": "ACKED c1", member + "c {shard=2}": "ACKED c2",
		"b": "ACKED b1", member + "plain": "ACKED c",
	}
	xdstest.Equal(t, "entries", want, got)
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
	server.Set(t, deep, shallow)
	watch(t, client, "deep").until("one")
	watch(t, client, "shallow").until("one")
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

// ClientStatusRequest.exclude_resource_contents: everything but xds_config.
func TestExcludeResourceContents(t *testing.T) {
	t.Parallel()
	service, server, client := start(t)
	server.Set(t, cluster("a", "one"))
	watch(t, client, "a").until("one")

	want := of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name())
	if want.GetGenericXdsConfigs()[0].GetXdsConfig() == nil {
		t.Fatal("there are no contents to exclude")
	}
	want.GetGenericXdsConfigs()[0].XdsConfig = nil
	got := of(fetch(t, service, &statusv3.ClientStatusRequest{ExcludeResourceContents: true}), t.Name())
	xdstest.Equal(t, "the client without contents", want, got, protocmp.Transform())
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
	a := watch(t, client, "a")
	a.until("one")
	stream, err := service.StreamClientStatus(testutils.Context(t))
	xdstest.NoError(t, err)
	for i, want := range []string{"1", "1", "2"} {
		if want == "2" {
			server.Set(t, cluster("a", "two"))
			a.until("two")
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

// Every client of the process is in the answer: those of channels, which share one
// per bootstrap, and others, until they are closed.
func TestEveryClientOfTheProcess(t *testing.T) {
	t.Parallel()
	service, server := serve(t), xdstest.StartServer(t)
	count := func(nodeID string) (n int) {
		for _, c := range fetch(t, service, &statusv3.ClientStatusRequest{}).GetConfig() {
			if c.GetNode().GetId() == nodeID {
				n++
			}
		}
		return n
	}
	expect := func(moment string, unshared, shared int) {
		t.Helper()
		if got := count(t.Name()); got != unshared {
			t.Errorf("%s: %d unshared clients, want %d", moment, got, unshared)
		}
		if got := count(t.Name() + "/shared"); got != shared {
			t.Errorf("%s: %d shared clients, want %d", moment, got, shared)
		}
	}
	config, err := bootstrap.Parse("the test", server.Bootstrap(t.Name()+"/shared"))
	xdstest.NoError(t, err)
	acquire := func() func() {
		_, release, err := xdsclient.Acquire(config)
		xdstest.NoError(t, err)
		return release
	}

	expect("at first", 0, 0)
	one, two := newClient(t, server, time.Hour), newClient(t, server, time.Hour)
	releaseOne, releaseTwo := acquire(), acquire()
	expect("made", 2, 1)
	one.Close()
	releaseOne()
	expect("one of each closed", 1, 1)
	two.Close()
	releaseTwo()
	expect("all closed", 0, 0)
}

// A server that has the service already, as after admin.Register with gRPC-Go's
// xds, is an error; gRPC would end the process.
func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer()
	xdstest.NoError(t, csds.Register(s))
	if err := csds.Register(s); err == nil || !strings.Contains(err.Error(), "ClientStatusDiscoveryService") {
		t.Errorf("registered twice: %v, want an error that names the service", err)
	}
}

// Answers during updates are consistent: an ACKED resource has its contents.
func TestFetchWhileUpdatesRun(t *testing.T) {
	t.Parallel()
	service, server, client := start(t)
	a := watch(t, client, "a")
	ctx, cancel := context.WithCancel(testutils.Context(t))
	defer cancel()
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for ctx.Err() == nil {
				resp, err := service.FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				for _, c := range of(resp, t.Name()).GetGenericXdsConfigs() {
					m := &clusterv3.Cluster{}
					if c.GetClientStatus() != adminv3.ClientResourceStatus_ACKED {
						continue
					}
					if err := c.GetXdsConfig().UnmarshalTo(m); err != nil || m.GetName() != c.GetName() || c.GetVersionInfo() == "" {
						t.Errorf("%v: %v", c, err)
					}
				}
			}
		})
	}
	work.Go(func() {
		for ctx.Err() == nil {
			client.Attach("xds:///some", nil)()
			stop := client.Watch(clusters, "b", newWatcher(t))
			stop()
		}
	})
	for i := range 200 {
		text := fmt.Sprint("version ", i)
		server.Set(t, cluster("a", text))
		a.until(text)
	}
	cancel()
	work.Wait()
}
