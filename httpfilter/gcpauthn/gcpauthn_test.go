package gcpauthn

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

// fake is a metadata server without HTTP, for one audience.
type fake struct {
	mu     sync.Mutex
	asked  int
	expiry time.Duration // of the tokens, from now on
	err    error
	delay  time.Duration
}

func (f *fake) ask(ctx context.Context, _ string) (string, error) {
	f.mu.Lock()
	f.asked++
	n, delay, err := f.asked, f.delay, f.err
	f.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return "", status.FromContextError(ctx.Err()).Err()
	}
	return jwt(fmt.Sprintf(`{"exp": %d, "n": %d}`, time.Now().Add(f.expiry).Unix(), n)), err
}

// get returns the number of the token that an RPC gets: 0 for an error.
func get(t *testing.T, tokens *cache, want codes.Code) int {
	t.Helper()
	headers, err := tokens.get(t.Context(), "a")
	if status.Code(err) != want {
		t.Errorf("%v, want %v", err, want)
	}
	text, ok := strings.CutPrefix(headers["authorization"], "Bearer ")
	if !ok {
		return 0
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	xdstest.NoError(t, err)
	var exp, n int
	_, err = fmt.Sscanf(string(payload), `{"exp": %d, "n": %d}`, &exp, &n)
	xdstest.NoError(t, err)
	return n
}

// gRFC A83, "Call Credentials": a token is used until 30 s before it expires, and refreshed from a minute before that on, beside RPCs
// that use the old one.
func TestATokenIsRefreshedEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &fake{expiry: 10 * time.Minute, delay: time.Second}
		tokens := newCache(t.Context(), server.ask)
		xdstest.Equal(t, "the first RPC waits for a token", 1, get(t, tokens, codes.OK))
		for _, step := range []struct {
			after       time.Duration
			want, asked int
		}{
			{0, 1, 1},
			{8*time.Minute + 29*time.Second, 1, 1},
			{2 * time.Second, 1, 2}, // asks, and does not wait
			{2 * time.Second, 2, 2},
			{9*time.Minute + 28*time.Second, 2, 3}, // the last moment of the token
			{2 * time.Second, 3, 3},
			{9*time.Minute + 31*time.Second, 4, 4}, // It is too late: waits.
		} {
			time.Sleep(step.after) // of the bubble
			xdstest.Equal(t, fmt.Sprintf("token after another %v", step.after), step.want, get(t, tokens, codes.OK))
			synctest.Wait()
			server.mu.Lock()
			xdstest.Equal(t, fmt.Sprintf("requests after another %v", step.after), step.asked, server.asked)
			server.mu.Unlock()
		}
	})
}

// gRFC A83, "Call Credentials": RPCs without a token wait for one request, whose result is applied to all; an RPC whose
// deadline comes first ends with that.
func TestRPCsShareARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &fake{expiry: time.Hour, delay: time.Minute / 2}
		tokens := newCache(t.Context(), server.ask)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { xdstest.Equal(t, "token", 1, get(t, tokens, codes.OK)) })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := tokens.get(ctx, "a"); status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
		wg.Wait()
		xdstest.Equal(t, "requests", 1, server.asked)
	})
}

// gRFC A83, "Call Credentials": after a failure RPCs without a token get its status until the backoff is over, and an RPC, not a
// timer, begins the next request. A success resets the backoff. A token that is valid is used whatever requests end with.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &fake{expiry: 10 * time.Minute, err: status.Error(codes.Unauthenticated, "no")}
		tokens := newCache(t.Context(), server.ask)
		asks := func(want int) {
			t.Helper()
			synctest.Wait()
			xdstest.Equal(t, "requests", want, server.asked)
		}
		get(t, tokens, codes.Unauthenticated)
		get(t, tokens, codes.Unauthenticated)
		asks(1)
		time.Sleep(799 * time.Millisecond) // of the bubble, as below
		get(t, tokens, codes.Unauthenticated)
		asks(1)
		time.Sleep(time.Hour)
		asks(1)
		server.err = status.Error(codes.Unavailable, "down")
		get(t, tokens, codes.Unavailable)
		asks(2)
		time.Sleep(1279 * time.Millisecond)
		get(t, tokens, codes.Unavailable)
		asks(2)
		server.err = nil
		time.Sleep(time.Second)
		xdstest.Equal(t, "token", 3, get(t, tokens, codes.OK))
		server.err = status.Error(codes.Unavailable, "down again")
		time.Sleep(9 * time.Minute)
		xdstest.Equal(t, "token while the refresh fails", 3, get(t, tokens, codes.OK))
		asks(4)
		time.Sleep(29500 * time.Millisecond)
		get(t, tokens, codes.OK)
		asks(5)
		time.Sleep(time.Second)
		get(t, tokens, codes.Unavailable) // The token has expired, and the second backoff is not over.
		asks(5)
	})
}

// gRFC A83, "Call Credentials": of the token, only "exp" matters.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for _, good := range []string{jwt(`{"exp": 1234567890}`), jwt(`{"exp": 1234567890.5, "aud": ["x"]}`)} {
		at, err := expiry(good)
		if err != nil || at.Unix() != 1234567890 {
			t.Errorf("%s: %v, %v", good, at, err)
		}
	}
	for _, bad := range []string{"", "a.b", "a.!.c", jwt(`{}`), jwt(`{"exp": 0}`), jwt(`{"exp": "soon"}`), jwt(`{"exp": 1e300}`), jwt(`[`), jwt(`{"exp": 1}`) + ".d"} {
		if _, err := expiry(bad); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v, want UNAUTHENTICATED", bad, err)
		}
	}
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
		got, err := filter{}.ParseConfig(xdsmsg.Any(&gcppb.GcpAuthnFilterConfig{CacheConfig: &gcppb.TokenCacheConfig{CacheSize: size}}))
		xdstest.NoError(t, err)
		xdstest.Equal(t, fmt.Sprint("cache of ", size), httpfilter.Config(want), got)
	}
}

// gRFC A83, "Filter Call Credentials Cache" and "Cache Sharing and Lifetime": one cache for an instance, whose least recently used
// audiences go, also when an update makes it smaller. An override changes nothing.
func TestCache(t *testing.T) {
	t.Parallel()
	in := filter{}.NewClientInstance(httpfilter.ClientInstanceInfo{Name: "f"}).(*instance)
	defer in.Close()
	use := func(size int) {
		t.Helper()
		_, err := in.ClientInterceptor(cacheSize(size), cacheSize(1))
		xdstest.NoError(t, err)
	}
	kept := func() (names string) {
		for e := in.tokens.used.Front(); e != nil; e = e.Next() {
			names += e.Value.(*token).audience
		}
		if len(in.tokens.known) != len(names) {
			t.Errorf("%d are known of %s", len(in.tokens.known), names)
		}
		return names
	}
	use(3)
	a := in.tokens.of("a")
	for _, name := range []string{"b", "c", "a", "d"} {
		in.tokens.of(name)
	}
	xdstest.Equal(t, "kept", "dac", kept())
	use(2)
	xdstest.Equal(t, "kept by a smaller cache", "da", kept())
	use(5)
	if in.tokens.of("a") != a {
		t.Error("an update has lost what it had room for")
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

// gRFC A83, "Filter Behavior": the audience is that under the filter's instance name, of the cluster; without it nothing is added;
// another type is UNAVAILABLE; no token on an insecure connection. Credentials of the application stay.
func TestFilterBehavior(t *testing.T) {
	t.Parallel()
	server := &fake{expiry: time.Hour}
	i := newInterceptor("f", newCache(t.Context(), server.ask))
	secure := credentials.TLSInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	_, insecurely, err := insecure.NewCredentials().ClientHandshake(t.Context(), "", nil)
	xdstest.NoError(t, err)
	for _, test := range []struct {
		name  string
		md    httpfilter.Metadata
		auth  credentials.AuthInfo
		token bool
		want  codes.Code
	}{
		{"audience", httpfilter.Metadata{{Key: "f", Value: audience("a")}}, secure, true, codes.OK},
		{"none", nil, insecurely, false, codes.OK},
		{"that of another filter", httpfilter.Metadata{{Key: "envoy.filters.http.gcp_authn", Value: audience("a")}}, secure, false, codes.OK},
		{"another type", httpfilter.Metadata{{Key: "f"}}, secure, false, codes.Unavailable},
		{"insecure connection", httpfilter.Metadata{{Key: "f", Value: audience("a")}}, insecurely, false, codes.Unauthenticated},
		{"unknown connection", httpfilter.Metadata{{Key: "f", Value: audience("a")}}, nil, false, codes.Unauthenticated},
	} {
		for _, opts := range [][]grpc.CallOption{nil, {grpc.PerRPCCredentials(appCreds{})}} {
			var end sent
			rpc := &httpfilter.RPC{Options: opts}
			_, err := httpfilter.NewNext(&end, i).NewStream(t.Context(), rpc)
			xdstest.NoError(t, err)
			if end.creds.RequireTransportSecurity() != (opts != nil) {
				t.Errorf("%s: security is required: %v", test.name, opts == nil)
			}
			ctx := context.WithValue(t.Context(), httpfilter.MetadataKey{}, &test.md)
			ctx = credentials.NewContextWithRequestInfo(ctx, credentials.RequestInfo{AuthInfo: test.auth})
			headers, err := end.creds.GetRequestMetadata(ctx)
			if status.Code(err) != test.want || strings.HasPrefix(headers["authorization"], "Bearer e30.") != test.token ||
				(headers["app"]+headers["App"] == "1") != (opts != nil && test.want == codes.OK) {
				t.Errorf("%s: %v, %v", test.name, headers, err)
			}
		}
	}
	xdstest.Equal(t, "requests", 1, server.asked)
}

// contextFor is what gRPC asks credentials with, for an RPC to a cluster with the metadata over a secure connection.
func contextFor(ctx context.Context, md httpfilter.Metadata) context.Context {
	secure := credentials.TLSInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	return credentials.NewContextWithRequestInfo(context.WithValue(ctx, httpfilter.MetadataKey{}, &md), credentials.RequestInfo{AuthInfo: secure})
}

// A token that is known costs an RPC no allocation.
func TestAllocations(t *testing.T) {
	i := newInterceptor("f", newCache(t.Context(), (&fake{expiry: time.Hour}).ask))
	ctx := contextFor(t.Context(), httpfilter.Metadata{{Key: "f", Value: audience("a")}})
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
			next, ctx := httpfilter.NewNext(&end, bench.chain...), contextFor(b.Context(), bench.md)
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
