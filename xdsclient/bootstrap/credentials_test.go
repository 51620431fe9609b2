package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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

func serverWith(t *testing.T, creds string) *Server {
	t.Helper()
	return mustParse(t, `{"xds_servers": [{"server_uri": "a:1", "channel_creds": `+creds+`}]}`).Servers[0]
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
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			s := serverWith(t, test.creds)
			if s.CredentialsType != test.want {
				t.Errorf("got credentials of type %q, want %q", s.CredentialsType, test.want)
			}
			bundle, release, err := s.Credentials()
			if err != nil {
				t.Fatalf("Credentials failed: %v", err)
			}
			defer release()
			if got := bundle.TransportCredentials().Info().SecurityProtocol; got != test.want {
				t.Errorf("got security protocol %q, want %q", got, test.want)
			}
		})
	}
}

func TestRegisteredCredentialsBelongToTheCaller(t *testing.T) {
	t.Parallel()
	s := serverWith(t, `[{"type": "test-token", "config": {"k": "v"}}]`)

	first, releaseFirst, err := s.Credentials()
	if err != nil {
		t.Fatalf("Credentials failed: %v", err)
	}
	second, releaseSecond, err := s.Credentials()
	if err != nil {
		t.Fatalf("Credentials failed: %v", err)
	}
	if first == second {
		t.Error("two calls returned the same credentials, want each caller to own some")
	}
	if got, want := first.(*tokenBundle).config, `{"k": "v"}`; got != want {
		t.Errorf("the builder saw configuration %s, want %s", got, want)
	}
	releaseFirst()
	releaseFirst()
	if got := first.(*tokenBundle).released; got != 1 {
		t.Errorf("released %d times, want once", got)
	}
	if got := second.(*tokenBundle).released; got != 0 {
		t.Error("the credentials of the other caller were released as well")
	}
	releaseSecond()
}

func TestCredentialsWithoutConfigGetAnEmptyObject(t *testing.T) {
	t.Parallel()
	for _, creds := range []string{`[{"type": "test-token"}]`, `[{"type": "test-token", "config": null}]`} {
		bundle, release, err := serverWith(t, creds).Credentials()
		if err != nil {
			t.Fatalf("Credentials failed: %v", err)
		}
		release()
		if got := bundle.(*tokenBundle).config; got != "{}" {
			t.Errorf("%s: the builder saw %q, want {}", creds, got)
		}
	}
}

func TestCredentialsThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	_, _, err := serverWith(t, `[{"type": "test-broken"}]`).Credentials()
	if want := "test-broken credentials for management server a:1: no token"; err == nil || err.Error() != want || !errors.Is(err, errBuild) {
		t.Errorf("got error %v, want %q around the builder's", err, want)
	}
	_, _, err = serverWith(t, `[{"type": "test-nothing"}]`).Credentials()
	if want := "test-nothing credentials for management server a:1: their builder made none"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func TestFaultsOfABuilderGetTheirPath(t *testing.T) {
	t.Parallel()
	_, err := Parse("b", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "test-faults"}]}]}`))
	want := "xDS bootstrap b: 2 faults:\n" +
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
