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
