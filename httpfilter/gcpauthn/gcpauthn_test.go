package gcpauthn

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gcppb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/gcp_authn/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jwt is a token with a payload.
func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

// fake is a metadata server without HTTP, whose tokens have numbers.
type fake struct {
	asked  int
	expiry time.Duration // of the tokens, from now on
	delay  time.Duration
	err    error
}

func (f *fake) ask(ctx context.Context, _ string) (string, error) {
	f.asked++
	n, expiry, err := f.asked, f.expiry, f.err
	select {
	case <-time.After(f.delay):
	case <-ctx.Done():
		return "", status.FromContextError(ctx.Err()).Err()
	}
	return jwt(fmt.Sprintf(`{"exp": %d, "n": %d}`, time.Now().Add(expiry).Unix(), n)), err
}

// TestScript has what becomes of RPCs. The file in testdata says what the steps are.
func TestScript(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 0, func(t testing.TB) func(string) string {
		s := &script{TB: t, size: defaultCacheSize, in: newFilter().NewClientInstance(httpfilter.ClientInstanceInfo{Name: "f"}).(*instance)}
		s.in.tokens.ask = s.server.ask
		t.Cleanup(s.in.Close)
		return s.step
	})
}

// script is an instance of the filter and its metadata server.
type script struct {
	testing.TB
	server fake
	in     *instance
	size   cacheSize
}

func (s *script) step(line string) string {
	verb, text, _ := strings.Cut(line, " ")
	words := strings.Fields(text)
	switch verb {
	case "server":
		s.server = fake{asked: s.server.asked, expiry: s.duration(words[0]), delay: s.duration(words[1])}
		if len(words) > 2 {
			var c codes.Code
			xdstest.NoError(s, c.UnmarshalJSON([]byte(strconv.Quote(words[2]))))
			s.server.err = status.Error(c, "as the script says")
		}
		return ""
	case "sleep":
		time.Sleep(s.duration(text)) // of the bubble
		return ""
	case "cache":
		n, err := strconv.Atoi(text)
		xdstest.NoError(s, err)
		s.size = cacheSize(n)
		_, err = s.in.ClientInterceptor(s.size, cacheSize(1))
		xdstest.NoError(s, err)
		return s.kept()
	case "kept":
		return s.kept()
	case "expiry": // of a token with a payload, or with these parts
		parts := strings.ReplaceAll(text, "-", "")
		if strings.ContainsAny(text, "{[") {
			parts = jwt(text)
		}
		at, err := expiry(parts)
		if err != nil {
			return status.Code(err).String()
		}
		return fmt.Sprint(at.Unix())
	case "rpc", "rpcs": // at once
		said := make([]string, map[string]int{"rpc": 1, "rpcs": 10}[verb])
		var all sync.WaitGroup
		for i := range said {
			all.Go(func() { said[i] = s.rpc(words) })
		}
		all.Wait()
		synctest.Wait()
		slices.Sort(said)
		return fmt.Sprintf("%s; %d requests", strings.Join(slices.Compact(said), " and "), s.server.asked)
	}
	s.Fatalf("what is %q?", line)
	return ""
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	xdstest.NoError(s, err)
	return d
}

// kept are the audiences of which the instance knows, the last used first.
func (s *script) kept() string {
	var names []string
	for e := s.in.tokens.used.Front(); e != nil; e = e.Next() {
		names = append(names, e.Value.(*token).audience)
	}
	xdstest.Equal(s, "known", len(names), len(s.in.tokens.known))
	return strings.Join(names, " ")
}

// metadatas are those of clusters, and connections the kinds of connections to them.
var (
	metadatas = map[string]httpfilter.Metadata{
		"none": nil, "other-filter": {{Key: "envoy.filters.http.gcp_authn", Value: audience("a")}}, "other-type": {{Key: "f"}},
	}
	secure      = credentials.TLSInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	connections = map[string]credentials.AuthInfo{"insecure": insecureInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, "unknown": nil}
)

type insecureInfo struct{ credentials.CommonAuthInfo }

func (insecureInfo) AuthType() string { return "insecure" }

// rpc returns what an RPC carries.
func (s *script) rpc(words []string) string {
	ctx, rpc := s.Context(), new(httpfilter.RPC)
	md, auth := httpfilter.Metadata{{Key: "f", Value: audience("a")}}, credentials.AuthInfo(secure)
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "to":
			md = httpfilter.Metadata{{Key: "f", Value: audience(value)}}
		case "metadata":
			md = metadatas[value]
		case "connection":
			auth = connections[value]
		case "app":
			rpc.Options = []grpc.CallOption{grpc.PerRPCCredentials(appCreds{})}
		case "timeout":
			short, cancel := context.WithTimeout(ctx, s.duration(value))
			defer cancel()
			ctx = short
		}
	}
	i, err := s.in.ClientInterceptor(s.size, cacheSize(1))
	xdstest.NoError(s, err)
	var end sent
	_, err = httpfilter.NewNext(&end, i).NewStream(ctx, rpc)
	xdstest.NoError(s, err)
	said := "sent"
	if end.creds.RequireTransportSecurity() {
		said += " over TLS"
	}
	headers, err := end.creds.GetRequestMetadata(contextFor(ctx, md, auth))
	if err != nil {
		return fmt.Sprint(status.Code(err), " ", status.Convert(err).Message())
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if text, ok := strings.CutPrefix(value, "Bearer "); ok {
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
			xdstest.NoError(s, err)
			_, value, _ = strings.Cut(string(payload), `"n": `)
			value = "token " + strings.TrimSuffix(value, "}")
		}
		said += fmt.Sprintf(", %s: %s", name, value)
	}
	return said
}

// gRFC A83, "Call Credentials": the request, and the statuses that its failures mean. It reads the environment, so it is not parallel.
func TestMetadataServer(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer server.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   codes.Code
	}{
		{"token", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/identity" || r.Method != http.MethodGet ||
				r.URL.Query().Get("audience") != "https://a?b&c" || r.Header.Get("Metadata-Flavor") != "Google" {
				t.Errorf("the request is %v with %v", r.URL, r.Header)
			}
			fmt.Fprintln(w, "a.b.c")
		}, codes.OK},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, codes.Unavailable},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, codes.Unavailable},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, codes.Unauthenticated},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, codes.Unauthenticated},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, codes.Unauthenticated},
		{"too long", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", maxToken+1)) }, codes.Unauthenticated},
		{"cut off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, codes.Unavailable},
	} {
		answer = test.answer
		got, err := ask(t.Context(), "https://a?b&c")
		if status.Code(err) != test.want || err == nil && got != "a.b.c" {
			t.Errorf("%s: %q, %v, want %v", test.name, got, err, test.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, "a"); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	server.Close()
	if _, err := ask(t.Context(), "a"); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// gRFC A83, "xDS HTTP Filter Configuration". What is not valid is in httpfilter/builtin/testdata/configurations.txt.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	for size, want := range map[*wrapperspb.UInt64Value]cacheSize{nil: 10, wrapperspb.UInt64(1): 1, wrapperspb.UInt64(math.MaxUint64): bounds.TokenAudiences} {
		got, err := newFilter().ParseConfig(xdsmsg.Any(&gcppb.GcpAuthnFilterConfig{CacheConfig: &gcppb.TokenCacheConfig{CacheSize: size}}))
		xdstest.NoError(t, err)
		xdstest.Equal(t, fmt.Sprint("cache of ", size), httpfilter.Config(want), got)
	}
}

// appCreds are credentials of the application.
type appCreds struct{}

func (appCreds) RequireTransportSecurity() bool { return true }
func (appCreds) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"App": "1", "Authorization": "theirs"}, nil
}

// sent is the end of a chain: it keeps the last credentials.
type sent struct{ creds credentials.PerRPCCredentials }

func (s *sent) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	for _, opt := range append(rpc.Options, rpc.AddedOptions()...) {
		if o, ok := opt.(grpc.PerRPCCredsCallOption); ok {
			s.creds = o.Creds
		}
	}
	return httpfilter.EndedStream(ctx, nil, nil), nil
}

// contextFor is what gRPC asks credentials with, for an RPC to a cluster with the metadata.
func contextFor(ctx context.Context, md httpfilter.Metadata, auth credentials.AuthInfo) context.Context {
	return credentials.NewContextWithRequestInfo(context.WithValue(ctx, httpfilter.MetadataKey{}, &md), credentials.RequestInfo{AuthInfo: auth})
}

// A token that is known costs an RPC no allocation.
func TestAllocations(t *testing.T) {
	i := newInterceptor("f", newCache(t.Context(), (&fake{expiry: time.Hour}).ask))
	ctx := contextFor(t.Context(), httpfilter.Metadata{{Key: "f", Value: audience("a")}}, secure)
	if n := testing.AllocsPerRun(100, func() { _, _ = i.GetRequestMetadata(ctx) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRPC is an RPC through a chain without the filter, and with it to clusters without an audience and with one.
func BenchmarkRPC(b *testing.B) {
	i := newInterceptor("f", newCache(b.Context(), (&fake{expiry: time.Hour}).ask))
	for _, bench := range []struct {
		name  string
		chain []httpfilter.Interceptor
		md    httpfilter.Metadata
	}{
		{"without", nil, nil},
		{"no audience", []httpfilter.Interceptor{i}, nil},
		{"audience", []httpfilter.Interceptor{i}, httpfilter.Metadata{{Key: "f", Value: audience("a")}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var end sent
			next, ctx := httpfilter.NewNext(&end, bench.chain...), contextFor(b.Context(), bench.md, secure)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = next.NewStream(ctx, new(httpfilter.RPC))
				if end.creds != nil {
					_, _ = end.creds.GetRequestMetadata(ctx)
				}
			}
		})
	}
}
