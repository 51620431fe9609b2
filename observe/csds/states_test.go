package csds_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	gocmp "github.com/google/go-cmp/cmp"
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

// given is what a test of a state starts from.
type given struct {
	t      *testing.T
	server *xdstest.Server
	client *xdsclient.XDSClient
}

// gRFC A88, "Cache Entry States, CSDS, and XdsClient Metrics": every state, over
// gRPC, of a client whose control plane behaves so.
func TestStates(t *testing.T) {
	t.Parallel()
	const one, two, bad = "one", "two", "bad: no good"
	acked, nacked, notThere, received := adminv3.ClientResourceStatus_ACKED, adminv3.ClientResourceStatus_NACKED,
		adminv3.ClientResourceStatus_DOES_NOT_EXIST, adminv3.ClientResourceStatus_RECEIVED_ERROR
	// sets takes texts and the events that follow them: it stores "a" with each text in turn, or
	// deletes it for an empty one, and waits for the watcher's event.
	sets := func(pairs ...string) func(given) {
		return func(g given) {
			var a *watcher
			for i := 0; i < len(pairs); i += 2 {
				if text := pairs[i]; text == "" {
					g.server.Delete(g.t, clusterURL, "a")
				} else {
					g.server.Set(g.t, cluster("a", text))
				}
				if a == nil {
					a = watch(g.t, g.client, "a")
				}
				a.until(pairs[i+1])
			}
		}
	}
	waits := func(kind string) func(given) {
		return func(g given) { watch(g.t, g.client, "a").until(kind) }
	}
	for name, test := range map[string]struct {
		feature bootstrap.Feature
		// timeout is how long the client waits for the resource, an hour if it is 0.
		timeout time.Duration
		when    func(given)
		then    adminv3.ClientResourceStatus
		// version is that of the resource in use, whose text is "one"; empty: none is.
		version string
		// failed is the version of error_state, which is not there if details is empty;
		// details is a part of its details.
		failed, details string
	}{
		"REQUESTED: no answer yet": {
			when: func(g given) {
				g.t.Cleanup(g.server.StallSends())
				watch(g.t, g.client, "a")
				g.server.MustWait(testutils.Context(g.t), g.t, xdstest.ForNames(clusterURL, "a"))
			},
			then: adminv3.ClientResourceStatus_REQUESTED,
		},
		"ACKED": {when: sets(one, "one"), then: acked, version: "1"},
		// gRFC A40, "ADS Parsing Logic Update": what the response carried again is
		// of its version.
		"ACKED: a later version with the same bytes": {
			when: func(g given) {
				b := watch(g.t, g.client, "b")
				sets(one, "one")(g)
				g.server.Set(g.t, cluster("b", two))
				b.until("two")
			},
			then: acked, version: "2",
		},
		"NACKED: nothing in use": {when: sets(bad, "invalid"), then: nacked, failed: "1", details: "no good"},
		"NACKED: the last good version in use": {
			when: sets(one, "one", bad, "ambient invalid"), then: nacked, version: "1", failed: "2", details: "no good",
		},
		"NACKED: the last good version withdrawn (fail_on_data_errors)": {
			feature: bootstrap.FeatureFailOnDataErrors,
			when:    sets(one, "one", bad, "invalid"), then: nacked, failed: "2", details: "no good",
		},
		// gRFC A40: "Accepted update will clean error states".
		"ACKED: after a NACK": {when: sets(bad, "invalid", one, "one"), then: acked, version: "2"},
		"DOES_NOT_EXIST: not received in time": {
			timeout: 50 * time.Millisecond,
			when: func(g given) {
				// The server has sent "b" and is not silent. For a type without a full state that is an answer for "a" too.
				parts := *clusters
				parts.FullStateInSotW = false
				g.server.Set(g.t, cluster("b", one))
				b := newWatcher(g.t)
				g.t.Cleanup(g.client.Watch(&parts, "b", b))
				b.until("one")
				g.t.Cleanup(g.server.StallSends())
				a := newWatcher(g.t)
				g.t.Cleanup(g.client.Watch(&parts, "a", a))
				a.until("does not exist")
			},
			then: notThere, details: "did not send it within",
		},
		"DOES_NOT_EXIST: deleted": {
			feature: bootstrap.FeatureFailOnDataErrors,
			when:    sets(one, "one", "", "does not exist"), then: notThere, failed: "2", details: "the server deleted it",
		},
		"DOES_NOT_EXIST: deleted, but still in use": {
			feature: bootstrap.FeatureIgnoreResourceDeletion,
			when:    sets(one, "one", "", "ambient does not exist"), then: notThere, version: "1", failed: "2", details: "the server deleted it",
		},
		// xRFC TP3, "Protocol Behavior".
		"RECEIVED_ERROR: nothing in use": {
			when: func(g given) {
				g.server.OnResponse(withError("a", codes.Internal, "oops"))
				g.server.Set(g.t, cluster("b", one))
				watch(g.t, g.client, "b")
				waits("server error")(g)
			},
			then: received, failed: "1", details: "oops",
		},
		"RECEIVED_ERROR: the last good version in use": {
			when: func(g given) {
				g.server.Set(g.t, cluster("a", one), cluster("b", one))
				a, b := watch(g.t, g.client, "a"), watch(g.t, g.client, "b")
				a.until("one")
				b.until("one")
				g.server.OnResponse(withError("a", codes.Internal, "oops"))
				g.server.Delete(g.t, clusterURL, "a")
				a.until("ambient server error")
			},
			then: received, version: "1", failed: "2", details: "oops",
		},
		"TIMEOUT: not received in time (resource_timer_is_transient_error)": {
			feature: bootstrap.FeatureResourceTimerIsTransientError, timeout: 50 * time.Millisecond,
			when: func(g given) {
				// An answer that comes after the timeout says that there is no such resource.
				g.t.Cleanup(g.server.StallSends())
				waits("timeout")(g)
			},
			then: adminv3.ClientResourceStatus_TIMEOUT, details: "did not send it within",
		},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			service, server := serve(t), xdstest.StartServer(t)
			started := time.Now()
			var opts []testutils.BootstrapOption
			if test.feature != "" {
				opts = append(opts, testutils.ServerFeatures(string(test.feature)))
			}
			client := newClient(t, server, cmp.Or(test.timeout, time.Hour), opts...)
			test.when(given{t, server, client})
			config := of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name())
			i := slices.IndexFunc(config.GetGenericXdsConfigs(), func(c *statusv3.ClientConfig_GenericXdsConfig) bool { return c.GetName() == "a" })
			if i < 0 {
				t.Fatalf("the answer does not have the resource: %v", config)
			}
			got := config.GetGenericXdsConfigs()[i]
			want := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: clusterURL, Name: "a", ClientStatus: test.then, VersionInfo: test.version}
			if test.version != "" {
				want.XdsConfig = xdsmsg.Any(cluster("a", one))
			}
			if test.details != "" {
				want.ErrorState = &adminv3.UpdateFailureState{VersionInfo: test.failed}
			}
			ignore := []gocmp.Option{
				protocmp.Transform(),
				protocmp.IgnoreFields(&statusv3.ClientConfig_GenericXdsConfig{}, "last_updated"),
				protocmp.IgnoreFields(&adminv3.UpdateFailureState{}, "last_update_attempt", "details"),
			}
			xdstest.Equal(t, "the entry", want, got, ignore...)
			within(t, "last_updated", got.GetLastUpdated(), want.XdsConfig != nil, started)
			within(t, "last_update_attempt", got.GetErrorState().GetLastUpdateAttempt(), want.ErrorState != nil, started)
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
