package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// fakeBuilder is a type of credentials that a user has registered.
type fakeBuilder struct {
	name  string
	parse func(json.RawMessage) (BuildCredentials, error)
}

func (b fakeBuilder) Type() string { return b.name }

func (b fakeBuilder) ParseConfig(config json.RawMessage) (BuildCredentials, error) {
	return b.parse(config)
}

var errBuild = errors.New("no token")

func init() {
	RegisterCredentials(fakeBuilder{"test-chatty", func(config json.RawMessage) (BuildCredentials, error) {
		return nil, fmt.Errorf("cannot use %s", config)
	}})
	RegisterCredentials(fakeBuilder{"test-decoder", func(config json.RawMessage) (BuildCredentials, error) {
		var v map[string]any
		err := json.Unmarshal(config, &v)
		return nil, fmt.Errorf("unexpected value %v (%v)", v, err)
	}})
	RegisterCredentials(fakeBuilder{"test-faults", func(json.RawMessage) (BuildCredentials, error) {
		return nil, &Faults{List: []Fault{{Path: "a[1]", Problem: "p"}, {Problem: "q"}}}
	}})
	RegisterCredentials(fakeBuilder{"test-broken", func(json.RawMessage) (BuildCredentials, error) {
		return func() (credentials.Bundle, func(), error) { return nil, nil, errBuild }, nil
	}})
	RegisterCredentials(fakeBuilder{"test-nothing", func(json.RawMessage) (BuildCredentials, error) {
		return func() (credentials.Bundle, func(), error) { return nil, nil, nil }, nil
	}})
	RegisterCredentials(fakeBuilder{"test-hollow", func(json.RawMessage) (BuildCredentials, error) {
		return func() (credentials.Bundle, func(), error) { return tlsBundle{}, nil, nil }, nil
	}})
	// Its credentials have a call credential and count how often they were
	// released.
	RegisterCredentials(fakeBuilder{"test-token", func(config json.RawMessage) (BuildCredentials, error) {
		return func() (credentials.Bundle, func(), error) {
			b := &tokenBundle{Bundle: insecure.NewBundle(), config: string(config)}
			return b, func() { b.released++ }, nil
		}, nil
	}})
}

type tokenBundle struct {
	credentials.Bundle
	config   string
	released int
}

func (b *tokenBundle) PerRPCCredentials() credentials.PerRPCCredentials { return b }

func (b *tokenBundle) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"config": b.config}, nil
}

func (b *tokenBundle) RequireTransportSecurity() bool { return false }

// fakeCallBuilder is a type of call credentials that a user has registered: they send their
// configuration, over any connection.
type fakeCallBuilder struct{ released *atomic.Int32 }

var callReleases atomic.Int32

func init() { RegisterCallCredentials(fakeCallBuilder{&callReleases}) }

func (fakeCallBuilder) Type() string { return "test-header" }

func (b fakeCallBuilder) ParseConfig(config json.RawMessage) (BuildCallCredentials, error) {
	return func() (credentials.PerRPCCredentials, func(), error) {
		return &tokenBundle{config: string(config)}, func() { b.released.Add(1) }, nil
	}, nil
}

func serverWith(t *testing.T, creds string) *Server {
	t.Helper()
	return mustParse(t, `{"xds_servers": [{"server_uri": "a:1", "channel_creds": `+creds+`}]}`).Servers[0]
}

// channelBundle makes the server's channel credentials.
func channelBundle(t *testing.T, s *Server) (bundle credentials.Bundle, release func()) {
	t.Helper()
	bundle, release, err := s.channel()
	if err != nil {
		t.Fatalf("building the credentials failed: %v", err)
	}
	return bundle, release
}

// gRFC A27: "List of channel creds; client will stop at the first type it
// supports."
func TestFirstSupportedCredentialsWin(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, creds, want string }{
		{"supported first", `[{"type": "insecure"}, {"type": "tls"}]`, "insecure"},
		{"unsupported before", `[{"type": "google_default"}, {"type": "tls"}, {"type": "insecure"}]`, "tls"},
		{"wrong configuration behind", `[{"type": "insecure"}, {"type": "tls", "config": {"refresh_interval": 1}}]`, "insecure"},
		{"wrong configuration of an unsupported type before", `[{"type": "x", "config": {"refresh_interval": 1}}, {"type": "tls"}]`, "tls"},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			s := serverWith(t, test.creds)
			xdstest.Equal(t, "got credentials of type", test.want, s.CredentialsType)
			bundle, _ := channelBundle(t, s)
			xdstest.Equal(t, "got security protocol",
				test.want, bundle.TransportCredentials().Info().SecurityProtocol)
		})
	}
}

// A program that lacks the credentials which the document prefers does not go on in plaintext
// unnoticed.
func TestPlaintextInPlaceOfOtherCredentialsIsLogged(t *testing.T) {
	t.Parallel()
	for uri, tc := range map[string]struct{ creds, want string }{
		"google.example": {`[{"type": "other"}, {"type": "google_default"}, {"type": "insecure"}, {"type": "tls"}]`,
			`xds_servers[0].channel_creds has "other", "google_default" before insecure, which this program does not support; ` +
				`import _ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault" for google_default`},
		"other.example": {`[{"type": "other"}, {"type": "insecure"}]`,
			`xds_servers[0].channel_creds has "other" before insecure, which this program does not support; add a type with bootstrap.RegisterCredentials`},
		"insecure.example": {`[{"type": "insecure"}, {"type": "other"}]`, ""},
		"tls.example":      {`[{"type": "other"}, {"type": "tls"}]`, ""},
	} {
		warnings := func() []string { return logged.After("management server " + uri + " is reached in plaintext: ") }
		before := len(warnings()) // of another run of the test
		s := mustParse(t, `{"xds_servers": [{"server_uri": "`+uri+`", "channel_creds": `+tc.creds+`}]}`).Servers[0]
		for range 2 {
			_, release, err := s.DialOptions()
			xdstest.NoError(t, err)
			release()
		}
		want := []string{}
		if tc.want != "" {
			want = append(want, tc.want)
		}
		xdstest.Equal(t, uri+": warnings", want, append([]string{}, warnings()[before:]...))
	}
}

func TestRegisteredCredentialsBelongToTheCaller(t *testing.T) {
	t.Parallel()
	made := make(chan *tokenBundle, 2)
	build := func() (credentials.Bundle, func(), error) {
		b := &tokenBundle{Bundle: insecure.NewBundle()}
		made <- b
		return b, func() { b.released++ }, nil
	}
	s := &Service{what: "management server", URI: "a:1", channel: build}
	var releases []func()
	for range 2 {
		options, release, err := s.DialOptions()
		if err != nil || len(options) != 1 {
			t.Fatalf("DialOptions returned %d options and error %v, want one", len(options), err)
		}
		releases = append(releases, release)
	}
	first, second := <-made, <-made
	releases[0]()
	releases[0]()
	if first.released != 1 || second.released != 0 {
		t.Errorf("released %d and %d times, want the credentials of the first caller once", first.released, second.released)
	}
	releases[1]()
}

func TestCredentialsWithoutConfigGetAnEmptyObject(t *testing.T) {
	t.Parallel()
	for creds, want := range map[string]string{
		`[{"type": "test-token"}]`: "{}", `[{"type": "test-token", "config": null}]`: "{}", `[{"type": "test-token", "config": {"k": "v"}}]`: `{"k": "v"}`,
	} {
		bundle, _ := channelBundle(t, serverWith(t, creds))
		xdstest.Equal(t, creds+": the builder saw", want, bundle.(*tokenBundle).config)
	}
}

func TestCredentialsThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	_, _, err := serverWith(t, `[{"type": "test-broken"}]`).DialOptions()
	if want := "test-broken credentials for management server a:1: no token"; err == nil || err.Error() != want || !errors.Is(err, errBuild) {
		t.Errorf("got error %v, want %q around the builder's", err, want)
	}
	_, _, err = serverWith(t, `[{"type": "test-nothing"}]`).DialOptions()
	if want := "test-nothing credentials for management server a:1: their builder made none"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	_, _, err = serverWith(t, `[{"type": "test-hollow"}], "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}]`).DialOptions()
	if want := "test-hollow credentials for management server a:1: their bundle has no transport credentials"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// TestUnknownCredentialsOfAnAuthority: an authority whose servers have only unknown
// credentials does not make the bootstrap invalid; dialling such a server fails.
func TestUnknownCredentialsOfAnAuthority(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `{`+servers+`, "authorities": {"c2p": {"xds_servers": [
		{"server_uri": "dns:///xds.example.com", "channel_creds": [{"type": "google_default"}, {"type": "other"}]},
		{"server_uri": "b:1", "channel_creds": [{"type": "insecure"}]}]}}}`)
	c2p := c.Authorities["c2p"].Servers
	_, _, err := c2p[0].DialOptions()
	want := `authorities["c2p"].xds_servers[0].channel_creds: expected a type that this program supports (` +
		channelTypes.types() + `), found only "google_default", "other"; ` +
		`import _ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault" for google_default`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if c2p[0].CredentialsType != "" || c2p[0].Key() == c2p[1].Key() {
		t.Errorf("got credentials of type %q, want none", c2p[0].CredentialsType)
	}
	if _, _, err := c2p[1].DialOptions(); err != nil {
		t.Errorf("the authority's other server: %v", err)
	}
}

func TestFaultsOfABuilderGetTheirPath(t *testing.T) {
	t.Parallel()
	_, err := Parse("b", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "test-faults"}]}]}`))
	want := "xDS bootstrap b: 2 errors:\n" +
		"  xds_servers[0].channel_creds[0].config.a[1]: p\n" +
		"  xds_servers[0].channel_creds[0].config: q"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRegisteringATypeTwicePanicsWithBothNames(t *testing.T) {
	t.Parallel()
	defer func() {
		text := fmt.Sprint(recover())
		for _, want := range []string{"bootstrap.insecureBuilder", "bootstrap.fakeBuilder", `"insecure"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the panic %q does not name %s", text, want)
			}
		}
	}()
	RegisterCredentials(fakeBuilder{name: "insecure"})
}
