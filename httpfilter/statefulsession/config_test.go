package statefulsession

import (
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiepb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	httppb "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a := xdsmsg.Any(m)
	return a
}

// by is a configuration with a state of the given type.
func by(t testing.TB, state proto.Message) *sessionpb.StatefulSession {
	pb := &sessionpb.StatefulSession{SessionState: &corepb.TypedExtensionConfig{Name: "s"}}
	if state != nil {
		pb.SessionState.TypedConfig = packed(t, state)
	}
	return pb
}

func byCookie(t testing.TB, c *httppb.Cookie) *sessionpb.StatefulSession {
	return by(t, &cookiepb.CookieBasedSessionState{Cookie: c})
}

// gRFC A55, "Listener and Route Configuration through xDS".
func TestConfig(t *testing.T) {
	t.Parallel()
	const at = "session_state.typed_config"
	const cookie = at + ".cookie"
	for _, tc := range []struct {
		given  string
		config *sessionpb.StatefulSession
		want   config
		faults []string
	}{
		{given: "no session state", config: &sessionpb.StatefulSession{}},
		{given: "a name alone", config: byCookie(t, &httppb.Cookie{Name: "n"}), want: config{name: "n", path: "/"}},
		{
			given: "everything", config: byCookie(t, &httppb.Cookie{Name: "n", Path: "/p.S", Ttl: durationpb.New(2 * time.Minute)}),
			want: config{name: "n", path: "/p.S", ttl: 2 * time.Minute},
		},
		{given: "a ttl of 0", config: byCookie(t, &httppb.Cookie{Name: "n", Ttl: &durationpb.Duration{}}), want: config{name: "n", path: "/"}},
		{
			given: "what is ignored",
			config: func() *sessionpb.StatefulSession {
				pb := byCookie(t, &httppb.Cookie{Name: "n", Attributes: []*httppb.CookieAttribute{{Name: "SameSite", Value: "None"}}})
				pb.Strict = true
				return pb
			}(),
			want: config{name: "n", path: "/"},
		},
		{given: "no typed_config", config: by(t, nil), faults: []string{at + ": must be a CookieBasedSessionState"}},
		{given: "another kind of state", config: by(t, &httppb.Cookie{Name: "n"}), faults: []string{at + ": must be a CookieBasedSessionState"}},
		{given: "no cookie", config: byCookie(t, nil), faults: []string{cookie + ": must be set"}},
		{given: "an empty name", config: byCookie(t, &httppb.Cookie{}), faults: []string{cookie + ".name: must not be empty"}},
		{
			given:  "several faults",
			config: byCookie(t, &httppb.Cookie{Name: "a=b", Path: "/;x", Ttl: durationpb.New(-1)}),
			faults: []string{cookie + `.name: "a=b" cannot`, cookie + `.path: "/;x" cannot`, cookie + ".ttl: must be a valid duration of at least 0"},
		},
		{
			given:  "a ttl out of range",
			config: byCookie(t, &httppb.Cookie{Name: "n", Ttl: &durationpb.Duration{Nanos: -1, Seconds: 1}}),
			faults: []string{cookie + ".ttl: must be a valid duration"},
		},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			got, err := filter{}.ParseConfig(packed(t, tc.config))
			checkConfig(t, got, err, tc.want, tc.faults)

			override := &sessionpb.StatefulSessionPerRoute{Override: &sessionpb.StatefulSessionPerRoute_StatefulSession{StatefulSession: tc.config}}
			got, err = filter{}.ParseOverride(packed(t, override))
			for i := range tc.faults {
				tc.faults[i] = "stateful_session." + tc.faults[i]
			}
			checkConfig(t, got, err, tc.want, tc.faults)
		})
	}
}

func checkConfig(t *testing.T, got httpfilter.Config, err error, want config, faults []string) {
	t.Helper()
	if len(faults) == 0 {
		if c, ok := got.(*config); err != nil || !ok || *c != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		return
	}
	if err == nil || got != nil {
		t.Fatalf("got %+v, %v; want nothing and an error", got, err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(faults) {
		t.Fatalf("error %q has %d faults, want %q", err, len(lines), faults)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, faults[i]) {
			t.Errorf("fault %q, want %q", line, faults[i])
		}
	}
}

// gRFC A39: each configuration has to be of the type that is meant for its
// place.
func TestOverride(t *testing.T) {
	t.Parallel()
	disabled := func(b bool) *sessionpb.StatefulSessionPerRoute {
		return &sessionpb.StatefulSessionPerRoute{Override: &sessionpb.StatefulSessionPerRoute_Disabled{Disabled: b}}
	}
	got, err := filter{}.ParseOverride(packed(t, disabled(true)))
	checkConfig(t, got, err, config{}, nil)
	for _, tc := range []struct {
		given string
		pb    proto.Message
		want  string
	}{
		{"disabled: false", disabled(false), "disabled: must be true"},
		{"nothing", &sessionpb.StatefulSessionPerRoute{}, "override must be disabled or stateful_session"},
		{"a top-level configuration", byCookie(t, &httppb.Cookie{Name: "n"}), "mismatched message type"},
	} {
		if _, err := (filter{}).ParseOverride(packed(t, tc.pb)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.given, err, tc.want)
		}
	}
	if _, err := (filter{}).ParseConfig(packed(t, disabled(true))); err == nil {
		t.Error("an override is taken for a top-level configuration")
	}
}

// An override takes the place of the configuration as a whole.
func TestMerge(t *testing.T) {
	t.Parallel()
	on, other, off := &config{name: "n", path: "/"}, &config{name: "o", path: "/"}, &config{}
	for _, tc := range []struct {
		given         string
		top, override httpfilter.Config
		want          *config
	}{
		{"no override", on, nil, on},
		{"another cookie", on, other, other},
		{"disabled by the override", on, off, nil},
		{"enabled by the override", off, on, on},
		{"nothing at all", off, nil, nil},
	} {
		i, err := filter{}.NewClientInstance(httpfilter.ClientInstanceInfo{}).ClientInterceptor(tc.top, tc.override)
		var got *config
		if i != nil {
			got = i.(*interceptor).config
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.given, got, err, tc.want)
		}
	}
}
