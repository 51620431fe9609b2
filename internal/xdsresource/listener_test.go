package xdsresource

import (
	"errors"
	"testing"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	_ "github.com/dynxds/dynxds/httpfilter/router"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

const (
	plainFilterURL  = "type.googleapis.com/dynxds.test.Plain"
	serverFilterURL = "type.googleapis.com/dynxds.test.Server"
	overridableURL  = "type.googleapis.com/dynxds.test.Overridable"
	overrideURL     = "type.googleapis.com/dynxds.test.Override"
	unknownURL      = "type.googleapis.com/dynxds.test.Unknown"
	hcmPath         = "api_listener.api_listener"
)

func init() {
	httpfilter.Register(plainFilter{})
	httpfilter.Register(serverFilter{})
	httpfilter.Register(overridableFilter{})
}

// plainFilter is a filter for clients that is not terminal and takes no
// override. Its configuration is the type URL that it was configured with.
type plainFilter struct{}

func (plainFilter) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return nil
}

// serverFilter is a filter for servers alone.
type serverFilter struct{}

func (serverFilter) TypeURLs() []string { return []string{serverFilterURL} }
func (serverFilter) IsTerminal() bool   { return false }
func (serverFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	return config.GetTypeUrl(), nil
}
func (serverFilter) ParseOverride(config *anypb.Any) (httpfilter.Config, error) {
	return config.GetTypeUrl(), nil
}

// overridableFilter has a type of its own for overrides. A configuration is
// the bytes it was parsed from.
type overridableFilter struct{ plainFilter }

func (overridableFilter) TypeURLs() []string { return []string{overridableURL, overrideURL} }
func (overridableFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	if config.GetTypeUrl() == overrideURL {
		return nil, errors.New("overridable: this is an override")
	}
	return string(config.GetValue()), nil
}
func (overridableFilter) ParseOverride(config *anypb.Any) (httpfilter.Config, error) {
	switch {
	case config.GetTypeUrl() == overridableURL:
		return nil, errors.New("overridable: this is no override")
	case string(config.GetValue()) == "bad":
		return nil, errors.New("overridable: bad configuration")
	default:
		return string(config.GetValue()), nil
	}
}

func (plainFilter) TypeURLs() []string { return []string{plainFilterURL} }
func (plainFilter) IsTerminal() bool   { return false }
func (plainFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	if string(config.GetValue()) == "bad" {
		return nil, errors.New("plain: bad configuration")
	}
	return config.GetTypeUrl(), nil
}

func httpFilter(name string, config *anypb.Any) *hcmpb.HttpFilter {
	return &hcmpb.HttpFilter{Name: name, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: config}}
}

func plain(name string) *hcmpb.HttpFilter {
	return httpFilter(name, &anypb.Any{TypeUrl: plainFilterURL})
}

func disabled(f *hcmpb.HttpFilter) *hcmpb.HttpFilter {
	f.Disabled = true
	return f
}

func validManager() *hcmpb.HttpConnectionManager {
	return &hcmpb.HttpConnectionManager{
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{ConfigSource: xdsmsg.ADS(), RouteConfigName: "routes"}},
		HttpFilters:    []*hcmpb.HttpFilter{xdsmsg.Router()},
	}
}

func apiListener(hcm proto.Message) *listenerpb.Listener {
	return &listenerpb.Listener{
		Name:        "echo.example.com",
		ApiListener: &listenerpb.ApiListener{ApiListener: xdsmsg.Any(hcm)},
	}
}

// A disabled filter of an unknown type is left out, but not for routes that enable it.
func TestDisabledFilterOfAnUnknownType(t *testing.T) {
	t.Parallel()
	hcm := validManager()
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{plain("a"), disabled(httpFilter("auth", &anypb.Any{TypeUrl: unknownURL}))}, hcm.HttpFilters...)
	l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
	in := l.Filters[0]
	if len(l.Filters) != 3 || in.Name != "auth" || !in.Disabled {
		t.Fatalf("filters = %v, want one named auth that is disabled first", l.Filters)
	}
	if level, _, _ := OverrideOf(&in, []FilterOverrides{{"auth": {}}}); level != 0 {
		t.Errorf("the route does not enable the filter")
	}
	_, err := in.Filter.(httpfilter.ClientFilter).NewClientInstance(httpfilter.ClientInstanceInfo{}).ClientInterceptor(nil, nil)
	if want := `the route enables it, and this client has no filter for type "` + unknownURL + `"`; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %q", err, want)
	}
}
