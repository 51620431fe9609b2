package statefulsession

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiepb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httppb "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A55, "StatefulSessionFilter Processing", which refers to RFC 6265,
// section 5.1.4.
func TestPathMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		path, method string
		want         bool
	}{
		{"/", "/p.S/M", true},
		{"/p.S/M", "/p.S/M", true},
		{"/p.S", "/p.S/M", true},
		{"/p.S/", "/p.S/M", true},
		{"/p.S", "/p.S2/M", false},
		{"/p.S/M", "/p.S/M2", false},
		{"/p.S/M/", "/p.S/M", false},
		{"/Package1.Service2", "/Package2.Service1/Method3", false},
		{"p.S", "/p.S/M", false},
		{"/p.S/M", "/p.S/M?q=/x", true},
		{"/p.S/M/q", "/p.S/M?q=/p.S/M/q", false},
	} {
		xdstest.Equal(t, fmt.Sprintf("path %q, method %q", tc.path, tc.method),
			tc.want, (&config{path: tc.path}).applies(tc.method))
	}
}

// gRFC A55: the first cookie of the name counts, in whichever header it is.
func TestFindCookie(t *testing.T) {
	t.Parallel()
	c := &config{name: "n"}
	for _, tc := range []struct {
		given string
		lines []string
		want  string
		ok    bool
	}{
		{"no header", nil, "", false},
		{"other cookies", []string{"m=1; nn=2", "N=3"}, "", false},
		{"alone", []string{"n=1"}, "1", true},
		{"among others", []string{"m=1; n=2; o=3"}, "2", true},
		{"in the second header", []string{"m=1", "n=2"}, "2", true},
		{"twice", []string{"n=1; n=2", "n=3"}, "1", true},
		{"quoted, without blank", []string{`m=1;n="MQ=="`}, "MQ==", true},
		{"one quote", []string{`n="`}, `"`, true},
		{"no value", []string{"n"}, "", true},
		{"the name in a value", []string{"m=n=1"}, "", false},
	} {
		if got, ok := c.sessionValue(metadata.MD{"cookie": tc.lines}); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %q, %v; want %q, %v", tc.given, got, ok, tc.want, tc.ok)
		}
	}
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// gRFC A60, "Include Cluster Name in the Cookie"; gRFC A61, "Changes to Stateful
// Session Affinity".
func TestDecodeCookie(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want session
	}{
		{"10.0.0.1:80;cluster:c", session{"10.0.0.1:80", "c"}},
		{"10.0.0.1:80,[::1]:80;cluster:c", session{"10.0.0.1:80,[::1]:80", "c"}},
		{"206.12.3.6:8080;cluster:cloud-internal-istio:cloud_mp_635862331669_807571734533927564", session{"206.12.3.6:8080", "cloud-internal-istio:cloud_mp_635862331669_807571734533927564"}},
		{"10.0.0.1:80", session{"10.0.0.1:80", ""}},
		{"10.0.0.1:80;plugin:c", session{"10.0.0.1:80", ""}},
		{"10.0.0.1:80;", session{"10.0.0.1:80", ""}},
		{"host.example:80;cluster:c", session{"host.example:80", "c"}},
	} {
		value := encoded(tc.text)
		for _, v := range []string{value, base64.RawStdEncoding.EncodeToString([]byte(tc.text))} {
			if got, err := decode(v); err != nil || got != tc.want {
				t.Errorf("%q: %+v, %v; want %+v", tc.text, got, err, tc.want)
			}
		}
	}
	for _, value := range []string{
		"", "***", encoded(""), encoded("10.0.0.1"), encoded(":80"), encoded("10.0.0.1:http"), encoded("10.0.0.1:65536"),
		encoded("10.0.0.1:80,;cluster:c"), encoded(";cluster:c"),
	} {
		if got, err := decode(value); err == nil {
			t.Errorf("%q is read as %+v", value, got)
		}
	}
}

func TestEncodeCookie(t *testing.T) {
	t.Parallel()
	s := session{"10.0.0.1:80", "c"}
	value := encoded("10.0.0.1:80;cluster:c")
	for _, tc := range []struct {
		config config
		want   string
	}{
		{config{name: "n", path: "/"}, "n=" + value + "; Path=/; HttpOnly"},
		{config{name: "n", path: "/p.S", ttl: 2 * time.Minute}, "n=" + value + "; Path=/p.S; Max-Age=120; HttpOnly"},
		{config{name: "n", path: "/", ttl: time.Millisecond}, "n=" + value + "; Path=/; Max-Age=1; HttpOnly"},
	} {
		if got := tc.config.setCookie(s); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// backend is the end of a chain that answers from an endpoint of its own.
type backend struct {
	host     string // picked, whatever was asked for
	trailers bool   // answers without headers
	route    []string
	got      *httpfilter.RPC
}

func (b *backend) RouteHas(cluster string) bool { return slices.Contains(b.route, cluster) }

func (b *backend) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	b.got = rpc
	if o := rpc.HostOverride; o != nil {
		o.SetCluster(rpc.Cluster)
		if b.host != "" {
			o.SetHost(&b.host)
		}
	}
	if b.trailers {
		return httpfilter.EndedStream(ctx, nil, metadata.MD{"from": {"backend"}}), nil
	}
	return &answer{ClientStream: httpfilter.EndedStream(ctx, nil, nil)}, nil
}

type answer struct{ grpc.ClientStream }

func (*answer) Header() (metadata.MD, error) { return metadata.MD{"from": {"backend"}}, nil }

// gRFC A55, "StatefulSessionFilter Processing"; gRFC A60, "StatefulSessionFilter
// Changes"; gRFC A61: the cookie changes with the addresses.
func TestSessions(t *testing.T) {
	t.Parallel()
	conf := &config{name: "n", path: "/p.S"}
	const addr = "10.0.0.1:80"
	for _, tc := range []struct {
		name    string
		method  string
		cookie  string // of the RPC, before base64; empty: none
		backend backend
		want    []string // HostOverride.Addresses
		skipped bool
		cluster string // empty: a
		set     string // the cookie of the response, before base64; empty: none
	}{
		{name: "no cookie", backend: backend{host: addr}, set: addr + ";cluster:a"},
		{name: "no cookie, and the response is trailers only", backend: backend{host: addr, trailers: true}, set: addr + ";cluster:a"},
		{name: "the wanted endpoint", cookie: addr + ";cluster:a", backend: backend{host: addr}, want: []string{addr}},
		{name: "another endpoint", cookie: "10.0.0.2:80;cluster:a", backend: backend{host: addr}, want: []string{"10.0.0.2:80"}, set: addr + ";cluster:a"},
		{
			name: "the endpoint by another of its addresses", cookie: "10.0.0.2:80," + addr + ";cluster:a", backend: backend{host: addr + ",10.0.0.2:80"},
			want: []string{"10.0.0.2:80", addr}, set: addr + ",10.0.0.2:80;cluster:a",
		},
		{name: "the endpoint has another address now", cookie: addr + ";cluster:a", backend: backend{host: addr + ",10.0.0.2:80"}, want: []string{addr}, set: addr + ",10.0.0.2:80;cluster:a"},
		{name: "a cookie without cluster", cookie: addr, backend: backend{host: addr}, want: []string{addr}, set: addr + ";cluster:a"},
		{
			name: "another cluster of the route", cookie: addr + ";cluster:b", backend: backend{host: addr, route: []string{"a", "b"}},
			want: []string{addr}, cluster: "b",
		},
		{
			name: "a cluster that the route does not have", cookie: addr + ";cluster:b", backend: backend{host: addr, route: []string{"a"}},
			want: []string{addr}, set: addr + ";cluster:a",
		},
		{name: "nothing was picked", cookie: addr + ";cluster:a", want: []string{addr}},
		{name: "a cookie that cannot be read", cookie: "what", backend: backend{host: addr}, set: addr + ";cluster:a"},
		{name: "another path", method: "/p.T/M", cookie: addr, backend: backend{host: addr}, skipped: true},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			var md, set []string
			if tc.cookie != "" {
				md = []string{"cookie", "other=1; n=" + encoded(tc.cookie)}
			}
			if tc.set != "" {
				set = []string{conf.setCookie(sessionOf(t, tc.set))}
			}
			carryOut(t, conf, metadata.Pairs(md...), cmp.Or(tc.method, "/p.S/M"), &tc.backend, metadata.MD{"set-cookie": set})
			override := tc.backend.got.HostOverride
			if tc.skipped != (override == nil) || override != nil && !slices.Equal(override.Addresses, tc.want) {
				t.Fatalf("the picker is asked for %+v, want %q", override, tc.want)
			}
			xdstest.Equal(t, "the RPC goes to cluster", cmp.Or(tc.cluster, "a"), tc.backend.got.Cluster)
		})
	}
}

// carryOut sends an RPC with the given metadata through the filter, and checks the headers of the
// response, or the trailer of one without headers, for those of the session.
func carryOut(t *testing.T, conf *config, md metadata.MD, method string, b *backend, want metadata.MD) {
	t.Helper()
	i, _ := (&instance{}).ClientInterceptor(conf, nil)
	rpc := &httpfilter.RPC{Method: method, Cluster: "a"}
	s, err := httpfilter.NewNext(b, i).NewStream(metadata.NewOutgoingContext(t.Context(), md), rpc)
	xdstest.NoError(t, err)
	if err := s.RecvMsg(nil); err != io.EOF {
		t.Fatal(err)
	}
	header, _ := s.Header()
	trailer := s.Trailer()
	if b.trailers {
		header, trailer = trailer, header
	}
	for _, name := range []string{"set-cookie", "x-session"} {
		if !slices.Equal(header[name], want[name]) || trailer[name] != nil {
			t.Errorf("%s %q, want %q", name, header[name], want[name])
		}
	}
	if !slices.Equal(header["from"], []string{"backend"}) {
		t.Errorf("the backend's own metadata is %v", header)
	}
}

// Sessions by a header are as those by a cookie, for RPCs of all methods.
func TestSessionsByHeader(t *testing.T) {
	t.Parallel()
	const addr = "10.0.0.1:80"
	for _, tc := range []struct {
		name    string
		header  []string // of the RPC
		backend backend
		want    []string // HostOverride.Addresses
		cluster string   // empty: a
		set     string   // the header of the response, before base64; empty: none
	}{
		{name: "no header", backend: backend{host: addr}, set: addr + ";cluster:a"},
		{name: "no header, and the response is trailers only", backend: backend{host: addr, trailers: true}, set: addr + ";cluster:a"},
		{name: "the wanted endpoint", header: []string{encoded(addr + ";cluster:a")}, backend: backend{host: addr}, want: []string{addr}},
		{
			name: "a header that Envoy has set", header: []string{encoded(addr)}, backend: backend{host: addr},
			want: []string{addr}, set: addr + ";cluster:a",
		},
		{
			name: "another endpoint of another cluster", header: []string{encoded("10.0.0.2:80;cluster:b")}, backend: backend{host: addr, route: []string{"b"}},
			want: []string{"10.0.0.2:80"}, cluster: "b", set: addr + ";cluster:b",
		},
		{name: "two headers", header: []string{encoded(addr + ";cluster:a"), "x"}, backend: backend{host: addr}, want: []string{addr}},
		{name: "a header that cannot be read", header: []string{"what"}, backend: backend{host: addr}, set: addr + ";cluster:a"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			md := metadata.MD{"x-session": tc.header, "cookie": {"x-session=" + encoded("10.0.0.9:80")}}
			var set []string
			if tc.set != "" {
				set = []string{encoded(tc.set)}
			}
			carryOut(t, &config{header: "x-session"}, md, "/p.S/M", &tc.backend, metadata.MD{"x-session": set})
			xdstest.Equal(t, "addresses", tc.want, tc.backend.got.HostOverride.Addresses)
			xdstest.Equal(t, "cluster", cmp.Or(tc.cluster, "a"), tc.backend.got.Cluster)
		})
	}
}

func sessionOf(t *testing.T, text string) session {
	t.Helper()
	s, err := decode(encoded(text))
	xdstest.NoError(t, err)
	return s
}

func FuzzCookie(f *testing.F) {
	for _, seed := range []string{"", "n=", "a=b; n=" + encoded("10.0.0.1:80;cluster:c"), `n="x"`, "n=" + encoded(",;;")} {
		f.Add(seed)
	}
	c := &config{name: "n", path: "/"}
	f.Fuzz(func(t *testing.T, line string) {
		value, ok := c.sessionValue(metadata.MD{"cookie": {line}})
		if !ok {
			return
		}
		s, err := decode(value)
		if err != nil {
			return
		}
		again, ok := c.sessionValue(metadata.MD{"cookie": {c.setCookie(s)}})
		if got, err := decode(again); !ok || err != nil || got != s {
			t.Errorf("%+v is decoded as %+v, %v", s, got, err)
		}
	})
}

// by is a configuration with a state of the given type.
func by(state proto.Message) *sessionpb.StatefulSession {
	pb := &sessionpb.StatefulSession{SessionState: &corepb.TypedExtensionConfig{Name: "s"}}
	if state != nil {
		pb.SessionState.TypedConfig = xdsmsg.Any(state)
	}
	return pb
}

func byCookie(c *httppb.Cookie) *sessionpb.StatefulSession {
	return by(&cookiepb.CookieBasedSessionState{Cookie: c})
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
		{given: "a name alone", config: byCookie(&httppb.Cookie{Name: "n"}), want: config{name: "n", path: "/"}},
		{
			given: "everything", config: byCookie(&httppb.Cookie{Name: "n", Path: "/p.S", Ttl: durationpb.New(2 * time.Minute)}),
			want: config{name: "n", path: "/p.S", ttl: 2 * time.Minute},
		},
		{given: "a ttl of 0", config: byCookie(&httppb.Cookie{Name: "n", Ttl: &durationpb.Duration{}}), want: config{name: "n", path: "/"}},
		{
			given: "what is ignored",
			config: func() *sessionpb.StatefulSession {
				pb := byCookie(&httppb.Cookie{Name: "n", Attributes: []*httppb.CookieAttribute{{Name: "SameSite", Value: "None"}}})
				pb.Strict = true
				return pb
			}(),
			want: config{name: "n", path: "/"},
		},
		{given: "no typed_config", config: by(nil), faults: []string{at + ": must be a CookieBasedSessionState or a HeaderBasedSessionState"}},
		{given: "another kind of state", config: by(&httppb.Cookie{Name: "n"}), faults: []string{at + ": must be a CookieBasedSessionState or a HeaderBasedSessionState"}},
		{given: "a header", config: by(&headerpb.HeaderBasedSessionState{Name: "X-Session"}), want: config{header: "x-session"}},
		{given: "a header without a name", config: by(&headerpb.HeaderBasedSessionState{}), faults: []string{at + ".name: "}},
		{given: "a header that is gRPC's", config: by(&headerpb.HeaderBasedSessionState{Name: "grpc-status"}), faults: []string{at + ".name: "}},
		{given: "a pseudo header", config: by(&headerpb.HeaderBasedSessionState{Name: ":path"}), faults: []string{at + ".name: "}},
		{given: "no cookie", config: byCookie(nil), faults: []string{cookie + ": must be set"}},
		{given: "an empty name", config: byCookie(&httppb.Cookie{}), faults: []string{cookie + ".name: must not be empty"}},
		{
			given:  "several faults",
			config: byCookie(&httppb.Cookie{Name: "a=b", Path: "/;x", Ttl: durationpb.New(-1)}),
			faults: []string{cookie + `.name: "a=b" cannot`, cookie + `.path: "/;x" cannot`, cookie + ".ttl: must be a valid duration of at least 0"},
		},
		{
			given:  "a ttl out of range",
			config: byCookie(&httppb.Cookie{Name: "n", Ttl: &durationpb.Duration{Nanos: -1, Seconds: 1}}),
			faults: []string{cookie + ".ttl: must be a valid duration"},
		},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			got, err := filter{}.ParseConfig(xdsmsg.Any(tc.config))
			checkConfig(t, got, err, tc.want, tc.faults)

			override := &sessionpb.StatefulSessionPerRoute{Override: &sessionpb.StatefulSessionPerRoute_StatefulSession{StatefulSession: tc.config}}
			got, err = filter{}.ParseOverride(xdsmsg.Any(override))
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
	got, err := filter{}.ParseOverride(xdsmsg.Any(disabled(true)))
	checkConfig(t, got, err, config{}, nil)
	for _, tc := range []struct {
		given string
		pb    proto.Message
		want  string
	}{
		{"disabled: false", disabled(false), "disabled: must be true"},
		{"nothing", &sessionpb.StatefulSessionPerRoute{}, "override must be disabled or stateful_session"},
		{"a top-level configuration", byCookie(&httppb.Cookie{Name: "n"}), "mismatched message type"},
	} {
		if _, err := (filter{}).ParseOverride(xdsmsg.Any(tc.pb)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.given, err, tc.want)
		}
	}
	if _, err := (filter{}).ParseConfig(xdsmsg.Any(disabled(true))); err == nil {
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
