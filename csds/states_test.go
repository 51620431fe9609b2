package csds_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// gRFC A88, "Cache Entry States, CSDS, and XdsClient Metrics": every state, over
// gRPC, of a client whose control plane behaves so.
func TestStates(t *testing.T) {
	t.Parallel()
	const never, soon = time.Hour, 50 * time.Millisecond
	type given struct {
		t      *testing.T
		server *xdstest.Server
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
				g.server.MustWait(testutils.Context(g.t), g.t, xdstest.ForNames(clusterURL, "a"))
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
			service, server := serve(t), xdstest.StartServer(t)
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
			xdstest.Equal(t, "the entry", test.then, got, ignore...)
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
