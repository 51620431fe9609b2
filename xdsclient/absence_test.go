package xdsclient

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// xRFC TP3, "Protocol Behavior"; gRFC A88, "Support for Errors Provided by the xDS
// server" and "Summary of Behavior Changes".
func TestErrorInPlaceOfAResource(t *testing.T) {
	failOnDataErrors := []string{"fail_on_data_errors"}
	for _, tc := range []struct {
		name     string
		features []string
		code     codes.Code
		// kind and want are what watchers get. withdrawn says that a cached
		// resource goes.
		kind      ErrorKind
		want      codes.Code
		withdrawn bool
	}{
		{"UNAVAILABLE", nil, codes.Unavailable, KindServer, codes.Unavailable, false},
		{"INTERNAL", nil, codes.Internal, KindServer, codes.Internal, false},
		{"UNKNOWN", nil, codes.Unknown, KindServer, codes.Unknown, false},
		{"any other code is transient", failOnDataErrors, codes.ResourceExhausted, KindServer, codes.ResourceExhausted, false},
		{"UNAVAILABLE is no data error", failOnDataErrors, codes.Unavailable, KindServer, codes.Unavailable, false},
		{"a code that gRPC does not have", failOnDataErrors, 17, KindServer, codes.Unknown, false},
		{"a code that is not even positive", failOnDataErrors, 1<<32 - 5, KindServer, codes.Unknown, false},
		{"OK is no code of an error", failOnDataErrors, codes.OK, KindServer, codes.Unknown, false},
		{"NOT_FOUND", nil, codes.NotFound, KindDoesNotExist, codes.NotFound, false},
		{"PERMISSION_DENIED", nil, codes.PermissionDenied, KindServer, codes.PermissionDenied, false},
		{"NOT_FOUND withdraws", failOnDataErrors, codes.NotFound, KindDoesNotExist, codes.NotFound, true},
		{"PERMISSION_DENIED withdraws", failOnDataErrors, codes.PermissionDenied, KindServer, codes.PermissionDenied, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			overEachProtocol(t, tc.features, func(v *protocolTest) {
				typ := v.types.clusters
				cached, fresh := v.listen("cached"), v.listen("fresh")
				start := time.Now()
				s := v.connect()
				s.say(typ, "1", clusters(cluster("cached", "x")))
				value := cached.cluster("x")
				pass(10 * time.Second)
				s.say(typ, "2", nil, resourceError("cached", tc.code, "no luck"), resourceError("fresh", tc.code, "no luck"))

				err := fresh.fault(tc.kind)
				xdstest.Equal(t, "the error was told after",
					10*time.Second, time.Since(start))
				if err.Code != tc.want || !strings.Contains(err.Error(), "no luck") {
					t.Errorf("got code %v and %v, want %v and the server's words", err.Code, err, tc.want)
				}
				var told *Error
				if tc.withdrawn {
					told = cached.fault(tc.kind)
				} else {
					told = cached.ambient(tc.kind)
				}
				xdstest.Equal(t, "the cached resource's error has code", tc.want, told.Code)
				// The timer was cancelled.
				pass(time.Minute)
				fresh.silent()
				// A watcher that comes late hears what the others did.
				late := v.listen("cached")
				if !tc.withdrawn {
					if late.cluster("x") != value {
						t.Error("a late watcher got another value")
					}
					late.ambient(tc.kind)
				} else {
					late.fault(tc.kind)
				}
				// The resource clears the error.
				s.say(typ, "3", clusters(cluster("cached", "x"), cluster("fresh", "x")))
				allHear("x", cached, late, fresh)
				if got := v.c.Stats(); got.ServerErrors != 2 || got.Rejected != 0 {
					t.Errorf("Stats() is %+v, want 2 ServerErrors and nothing rejected", got)
				}
			})
		})
	}
}

// Errors for names that are not watched are counted and dropped.
func TestErrorsForUnwatchedNames(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		a := v.listen("a")
		s := v.connect()
		s.say(v.types.clusters, "1", nil, resourceError("u", codes.Internal, "x"), resourceError("v", codes.NotFound, "x"))
		xdstest.Equal(t, "the NACK", "", s.answer())
		if got := v.c.Stats(); got.Unasked != 2 || got.ServerErrors != 0 {
			t.Errorf("Stats() is %+v, want 2 unasked and no ServerErrors", got)
		}
		v.c.mu.Lock()
		xdstest.Equal(t, "entries of the cache",
			1, len(v.c.authorities[authorityKey{}].levels[0].resources))
		v.c.mu.Unlock()
		if v.delta {
			a.fault(KindTimeout)
		} else {
			a.fault(KindDoesNotExist)
		}
	})
}

// The server's message is passed on, cut at 1 KiB, and made valid.
func TestErrorTextIsCut(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		long, none := v.listen("long"), v.listen("none")
		v.connect().say(v.types.clusters, "1", nil,
			resourceError("long", codes.Internal, strings.Repeat("é", 3000)), resourceError("none", codes.Internal, ""))
		xdstest.Equal(t, "the reason",
			bounds.Text(strings.Repeat("é", 3000), bounds.ErrorText), long.fault(KindServer).Err.Error())
		const text = `xDS Cluster "none": error Internal from the management server: the server gives no reason ` +
			`(management server passthrough:///script, node id "node-1"); the control plane knows why`
		if got := none.fault(KindServer).Error(); got != text {
			t.Errorf("the error reads\n%s\nwant\n%s", got, text)
		}
	})
}

// What of an error cannot be read is a fault of the response. It may be about any
// resource that seems to be missing, so none is deleted.
func TestErrorsThatCannotBeRead(t *testing.T) {
	overEachProtocol(t, []string{"fail_on_data_errors"}, func(v *protocolTest) {
		a := v.listen("a")
		s := v.connect()
		s.say(v.types.clusters, "1", clusters(cluster("a", "x")))
		a.cluster("x")
		s.answer()
		s.say(v.types.clusters, "2", nil, resourceError("", codes.NotFound, "x"))
		if got, want := s.answer(), "1 of 1 Cluster resources are invalid; resource_errors[0]: it names no resource"; got != want {
			t.Errorf("the NACK is\n%s\nwant\n%s", got, want)
		}
		a.silent()
	})
}

// gRFC A88, "Cache Entry States, CSDS, and XdsClient Metrics".
func TestCacheEntryStates(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		names := []string{"accepted", "rejected", "failed", "missing"}
		for _, name := range names {
			v.listen(name)
		}
		s := v.connect()
		state := func(name string) CacheState {
			v.c.mu.Lock()
			defer v.c.mu.Unlock()
			return v.c.authorities[authorityKey{}].levels[0].resources[resourceKey{typ: v.types.clusters, name: name}].state
		}
		for _, name := range names {
			xdstest.Equal(t, name+" is in state before the response", StateRequested, state(name))
		}
		s.say(v.types.clusters, "1", clusters(cluster("accepted", "x"), badCluster("rejected", "x")), resourceError("failed", codes.NotFound, "x"))
		s.answer()
		pass(time.Minute)
		missing := StateDoesNotExist
		if v.delta {
			missing = StateTimeout
		}
		for name, want := range map[string]CacheState{
			"accepted": StateACKed, "rejected": StateNACKed, "failed": StateReceivedError, "missing": missing,
		} {
			xdstest.Equal(t, "the state of "+name, want, state(name))
		}
	})
}
