package csds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/csds"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// clusters validates clusters by their alt_stat_name.
var clusters = &xdsclient.ResourceType{
	TypeURL:         clusterURL,
	Name:            "Cluster",
	FullStateInSotW: true,
	Decode: func(a *anypb.Any, _ xdsclient.DecodeOptions) (string, any, error) {
		m := &clusterv3.Cluster{}
		if err := a.UnmarshalTo(m); err != nil {
			return "", nil, err
		}
		if fault, bad := strings.CutPrefix(m.GetAltStatName(), "bad: "); bad {
			return m.GetName(), nil, errors.New(fault)
		}
		return m.GetName(), m, nil
	},
}

func cluster(name, text string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, AltStatName: text}
}

// ear is a watcher that passes on what it hears.
type ear struct {
	t     *testing.T
	heard chan string
}

func (e *ear) say(text string, done func()) {
	e.heard <- text
	done()
}

func (e *ear) ResourceChanged(value any, err error, done func()) {
	if err != nil {
		e.say(kindOf(err), done)
		return
	}
	e.say(value.(*clusterv3.Cluster).GetAltStatName(), done)
}

func (e *ear) AmbientError(err error, done func()) { e.say("ambient "+kindOf(err), done) }

func kindOf(err error) string {
	var fault *xdsclient.Error
	if !errors.As(err, &fault) {
		return err.Error()
	}
	return fault.Kind.String()
}

// until waits for an event, whatever comes before.
func (e *ear) until(text string) {
	e.t.Helper()
	ctx := testutils.Context(e.t)
	for {
		select {
		case got := <-e.heard:
			if got == text {
				return
			}
		case <-ctx.Done():
			e.t.Fatalf("the watcher did not hear %q", text)
		}
	}
}

func watch(t *testing.T, c *xdsclient.XDSClient, name string) *ear {
	e := &ear{t: t, heard: make(chan string, 64)}
	t.Cleanup(c.Watch(clusters, name, e))
	return e
}

// newClient makes a client whose node id is the test's name.
func newClient(t *testing.T, server *testutils.FakeServer, timeout time.Duration, opts ...testutils.BootstrapOption) *xdsclient.XDSClient {
	t.Helper()
	config, err := bootstrap.Parse("the test", server.Bootstrap(t.Name(), opts...))
	if err != nil {
		t.Fatal(err)
	}
	c, err := xdsclient.New(config, xdsclient.WithResourceTimeout(timeout),
		xdsclient.WithBackoff(backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve starts a gRPC server with CSDS on loopback and returns a client of it.
func serve(t *testing.T) statusv3.ClientStatusDiscoveryServiceClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	if err := csds.Register(s); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener) })
	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cc.Close()
		s.Stop()
		serving.Wait()
	})
	return statusv3.NewClientStatusDiscoveryServiceClient(cc)
}

func fetch(t *testing.T, service statusv3.ClientStatusDiscoveryServiceClient, req *statusv3.ClientStatusRequest) *statusv3.ClientStatusResponse {
	t.Helper()
	resp, err := service.FetchClientStatus(testutils.Context(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// of returns the part of an answer that is about the client of a node id, or nil.
// Other tests of the process have clients too.
func of(resp *statusv3.ClientStatusResponse, nodeID string) *statusv3.ClientConfig {
	for _, c := range resp.GetConfig() {
		if c.GetNode().GetId() == nodeID {
			return c
		}
	}
	return nil
}

// gRFC A88, "Cache Entry States, CSDS, and XdsClient Metrics": every state, over
// gRPC, of a client whose control plane behaves so.
func TestStates(t *testing.T) {
	t.Parallel()
	const never, soon = time.Hour, 50 * time.Millisecond
	type given struct {
		t      *testing.T
		server *testutils.FakeServer
		client *xdsclient.XDSClient
	}
	tests := map[string]struct {
		features []bootstrap.Feature
		timeout  time.Duration
		when     func(given)
		then     *statusv3.ClientConfig_GenericXdsConfig
		// details is what error_state.details says beside the rest.
		details string
	}{
		"REQUESTED: no answer yet": {
			timeout: never,
			when: func(g given) {
				g.t.Cleanup(g.server.StallSends())
				watch(g.t, g.client, "a")
				g.server.MustWait(testutils.Context(g.t), g.t, testutils.ForNames(clusterURL, "a"))
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{ClientStatus: adminv3.ClientResourceStatus_REQUESTED},
		},
		"ACKED": {
			timeout: never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"))
				watch(g.t, g.client, "a").until("one")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_ACKED,
				VersionInfo:  "1", XdsConfig: xdsmsg.Any(cluster("a", "one")),
			},
		},
		// gRFC A40, "ADS Parsing Logic Update": what the response carried again is
		// of its version.
		"ACKED: a later version with the same bytes": {
			timeout: never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"))
				b := watch(g.t, g.client, "b")
				watch(g.t, g.client, "a").until("one")
				g.server.Set(g.t, cluster("b", "two"))
				b.until("two")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_ACKED,
				VersionInfo:  "2", XdsConfig: xdsmsg.Any(cluster("a", "one")),
			},
		},
		"NACKED: nothing in use": {
			timeout: never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "bad: no good"))
				watch(g.t, g.client, "a").until("invalid")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_NACKED,
				ErrorState:   &adminv3.UpdateFailureState{VersionInfo: "1"},
			},
			details: "no good",
		},
		"NACKED: the last good version in use": {
			timeout: never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"))
				a := watch(g.t, g.client, "a")
				a.until("one")
				g.server.Set(g.t, cluster("a", "bad: no good"))
				a.until("ambient invalid")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_NACKED,
				VersionInfo:  "1", XdsConfig: xdsmsg.Any(cluster("a", "one")),
				ErrorState: &adminv3.UpdateFailureState{VersionInfo: "2"},
			},
			details: "no good",
		},
		"NACKED: the last good version withdrawn (fail_on_data_errors)": {
			features: []bootstrap.Feature{bootstrap.FeatureFailOnDataErrors},
			timeout:  never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"))
				a := watch(g.t, g.client, "a")
				a.until("one")
				g.server.Set(g.t, cluster("a", "bad: no good"))
				a.until("invalid")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_NACKED,
				ErrorState:   &adminv3.UpdateFailureState{VersionInfo: "2"},
			},
			details: "no good",
		},
		// gRFC A40: "Accepted update will clean error states".
		"ACKED: after a NACK": {
			timeout: never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "bad: no good"))
				a := watch(g.t, g.client, "a")
				a.until("invalid")
				g.server.Set(g.t, cluster("a", "one"))
				a.until("one")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_ACKED,
				VersionInfo:  "2", XdsConfig: xdsmsg.Any(cluster("a", "one")),
			},
		},
		"DOES_NOT_EXIST: did not come in time": {
			timeout: soon,
			when:    func(g given) { watch(g.t, g.client, "a").until("does not exist") },
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_DOES_NOT_EXIST,
				ErrorState:   &adminv3.UpdateFailureState{},
			},
			details: "did not send it within",
		},
		"DOES_NOT_EXIST: deleted": {
			features: []bootstrap.Feature{bootstrap.FeatureFailOnDataErrors},
			timeout:  never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"))
				a := watch(g.t, g.client, "a")
				a.until("one")
				g.server.Delete(g.t, clusterURL, "a")
				a.until("does not exist")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_DOES_NOT_EXIST,
				ErrorState:   &adminv3.UpdateFailureState{VersionInfo: "2"},
			},
			details: "the server deleted it",
		},
		"DOES_NOT_EXIST: deleted, but still in use": {
			features: []bootstrap.Feature{bootstrap.FeatureIgnoreResourceDeletion},
			timeout:  never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"))
				a := watch(g.t, g.client, "a")
				a.until("one")
				g.server.Delete(g.t, clusterURL, "a")
				a.until("ambient does not exist")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_DOES_NOT_EXIST,
				VersionInfo:  "1", XdsConfig: xdsmsg.Any(cluster("a", "one")),
				ErrorState: &adminv3.UpdateFailureState{VersionInfo: "2"},
			},
			details: "the server deleted it",
		},
		// xRFC TP3, "Protocol Behavior".
		"RECEIVED_ERROR: nothing in use": {
			timeout: never,
			when: func(g given) {
				g.server.OnResponse(withError("a", codes.Internal, "oops"))
				g.server.Set(g.t, cluster("b", "one"))
				watch(g.t, g.client, "b")
				watch(g.t, g.client, "a").until("server error")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_RECEIVED_ERROR,
				ErrorState:   &adminv3.UpdateFailureState{VersionInfo: "1"},
			},
			details: "oops",
		},
		"RECEIVED_ERROR: the last good version in use": {
			timeout: never,
			when: func(g given) {
				g.server.Set(g.t, cluster("a", "one"), cluster("b", "one"))
				a, b := watch(g.t, g.client, "a"), watch(g.t, g.client, "b")
				a.until("one")
				b.until("one")
				g.server.OnResponse(withError("a", codes.Internal, "oops"))
				g.server.Delete(g.t, clusterURL, "a")
				a.until("ambient server error")
			},
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_RECEIVED_ERROR,
				VersionInfo:  "1", XdsConfig: xdsmsg.Any(cluster("a", "one")),
				ErrorState: &adminv3.UpdateFailureState{VersionInfo: "2"},
			},
			details: "oops",
		},
		"TIMEOUT: did not come in time (resource_timer_is_transient_error)": {
			features: []bootstrap.Feature{bootstrap.FeatureResourceTimerIsTransientError},
			timeout:  soon,
			when:     func(g given) { watch(g.t, g.client, "a").until("timeout") },
			then: &statusv3.ClientConfig_GenericXdsConfig{
				ClientStatus: adminv3.ClientResourceStatus_TIMEOUT,
				ErrorState:   &adminv3.UpdateFailureState{},
			},
			details: "did not send it within",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, server := serve(t), testutils.StartFakeServer(t)
			started := time.Now()
			var features []string
			for _, f := range test.features {
				features = append(features, string(f))
			}
			client := newClient(t, server, test.timeout, testutils.ServerFeatures(features...))
			test.when(given{t, server, client})
			config := of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name())
			i := slices.IndexFunc(config.GetGenericXdsConfigs(), func(c *statusv3.ClientConfig_GenericXdsConfig) bool { return c.GetName() == "a" })
			if i < 0 {
				t.Fatalf("the answer does not have the resource: %v", config)
			}
			got := config.GetGenericXdsConfigs()[i]
			test.then.TypeUrl, test.then.Name = clusterURL, "a"
			ignore := []cmp.Option{
				protocmp.Transform(),
				protocmp.IgnoreFields(&statusv3.ClientConfig_GenericXdsConfig{}, "last_updated"),
				protocmp.IgnoreFields(&adminv3.UpdateFailureState{}, "last_update_attempt", "details"),
			}
			if diff := cmp.Diff(test.then, got, ignore...); diff != "" {
				t.Error(diff)
			}
			within(t, "last_updated", got.GetLastUpdated(), test.then.XdsConfig != nil, started)
			within(t, "last_update_attempt", got.GetErrorState().GetLastUpdateAttempt(), test.then.ErrorState != nil, started)
			if details := got.GetErrorState().GetDetails(); !strings.Contains(details, test.details) {
				t.Errorf("error_state.details is %q, want %q in it", details, test.details)
			}
		})
	}
}

// withError adds an error for a resource to every response.
func withError(name string, code codes.Code, text string) func(uint64, *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
	return func(_ uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
		resp.ResourceErrors = append(resp.ResourceErrors, &discoverypb.ResourceError{
			ResourceName: &discoverypb.ResourceName{Name: name},
			ErrorDetail:  status.New(code, text).Proto(),
		})
		return resp
	}
}

// within checks that a time is there if it is wanted, and of this test.
func within(t *testing.T, field string, at *timestamppb.Timestamp, wanted bool, started time.Time) {
	t.Helper()
	switch {
	case !wanted:
		if at != nil {
			t.Errorf("%s is %v, want none", field, at.AsTime())
		}
	case at == nil || at.AsTime().Before(started) || at.AsTime().After(time.Now()):
		t.Errorf("%s is %v, want a time since %v", field, at, started)
	}
}

// gRFC A40, "Generated Node Information", and client_scope: what the management
// server sees of the client, and who uses it.
func TestClientConfig(t *testing.T) {
	t.Parallel()
	service, server := serve(t), testutils.StartFakeServer(t)
	client := newClient(t, server, time.Hour)
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
	if diff := cmp.Diff(client.Bootstrap().Node, got.GetNode(), protocmp.Transform()); diff != "" {
		t.Errorf("node: %s", diff)
	}
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
		t.Errorf("client_scope is %q after a channel has gone", scope)
	}
}

// ClientStatusRequest.exclude_resource_contents: everything but xds_config.
func TestExcludeResourceContents(t *testing.T) {
	t.Parallel()
	service, server := serve(t), testutils.StartFakeServer(t)
	client := newClient(t, server, time.Hour)
	server.Set(t, cluster("a", "one"))
	watch(t, client, "a").until("one")

	want := of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name())
	if want.GetGenericXdsConfigs()[0].GetXdsConfig() == nil {
		t.Fatal("there are no contents to exclude")
	}
	want.GetGenericXdsConfigs()[0].XdsConfig = nil
	got := of(fetch(t, service, &statusv3.ClientStatusRequest{ExcludeResourceContents: true}), t.Name())
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
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
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("StreamClientStatus: %v, want INVALID_ARGUMENT", err)
	}
}

// gRFC A40, "Background": one answer per request; "this is not a watch-style API".
func TestStreamAnswersEachRequest(t *testing.T) {
	t.Parallel()
	service, server := serve(t), testutils.StartFakeServer(t)
	client := newClient(t, server, time.Hour)
	server.Set(t, cluster("a", "one"))
	a := watch(t, client, "a")
	a.until("one")
	stream, err := service.StreamClientStatus(testutils.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"1", "1", "2"} {
		if want == "2" {
			server.Set(t, cluster("a", "two"))
			a.until("two")
		}
		if err := stream.Send(&statusv3.ClientStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := of(resp, t.Name()).GetGenericXdsConfigs()[0].GetVersionInfo(); got != want {
			t.Errorf("answer %d has version %q, want %q", i, got, want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if resp, err := stream.Recv(); err != io.EOF {
		t.Errorf("after the last request: %v, %v, want the end of the stream", resp, err)
	}
}

// Every client of the process is in the answer: those of channels, which share one
// per bootstrap, and others, until they are closed.
func TestEveryClientOfTheProcess(t *testing.T) {
	t.Parallel()
	service, server := serve(t), testutils.StartFakeServer(t)
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
	if err != nil {
		t.Fatal(err)
	}
	acquire := func() func() {
		_, release, err := xdsclient.Acquire(config)
		if err != nil {
			t.Fatal(err)
		}
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
// xds, is told in an error; gRPC would end the process.
func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer()
	if err := csds.Register(s); err != nil {
		t.Fatal(err)
	}
	if err := csds.Register(s); err == nil || !strings.Contains(err.Error(), "ClientStatusDiscoveryService") {
		t.Errorf("registered twice: %v, want an error that names the service", err)
	}
}

// Answers made while everything changes are whole: what is ACKED has its contents.
func TestFetchWhileUpdatesRun(t *testing.T) {
	t.Parallel()
	service, server := serve(t), testutils.StartFakeServer(t)
	client := newClient(t, server, time.Hour)
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
			stop := client.Watch(clusters, "b", &ear{t: t, heard: make(chan string, 64)})
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
