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

func (b fakeCallBuilder) ParseConfig(config json.RawMessage) (buildCallCredentials, error) {
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
	xdstest.NoError(t, err)
	return bundle, release
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

func TestErrorOfABuilderIsWrapped(t *testing.T) {
	t.Parallel()
	if _, _, err := serverWith(t, `[{"type": "test-broken"}]`).DialOptions(); !errors.Is(err, errBuild) {
		t.Errorf("got error %v, want one around the builder's", err)
	}
}

func TestRegisteringATypeTwicePanics(t *testing.T) {
	t.Parallel()
	defer func() {
		text := fmt.Sprint(recover())
		for _, want := range []string{"bootstrap.fakeBuilder", `"insecure"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the panic %q does not name %s", text, want)
			}
		}
	}()
	RegisterCredentials(fakeBuilder{name: "insecure"})
}
