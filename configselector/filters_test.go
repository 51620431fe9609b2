package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// marking is a filter that appends its name to the header "via".
func marking(name string) httpfilter.Instance {
	return filterOf(name, func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		return next.NewStream(metadata.AppendToOutgoingContext(ctx, "via", name), rpc)
	})
}

func TestAFilterChoosesTheCluster(t *testing.T) {
	t.Parallel()
	other := toC()
	other.Match.Path, other.Match.PathKind = "/other", matching.PathExact
	other.Action.(*xdsresource.Forward).Clusters[0].Name = "d"
	listener := chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		rpc.Cluster = "d"
		return next.NewStream(ctx, rpc)
	}))
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{other, toC()}, listener: listener})
	d := decision.FromContext(mustUnary(t, t.Context(), w.s, "/s/m"))
	xdstest.Equal(t, "cluster of the Decision", "d", d.Cluster)
	// Another version keeps the cluster, though its route names "c".
	if got, err := w.s.Reselect(d); got != "d" || err != nil {
		t.Errorf("Reselect: %q, %v", got, err)
	}
	without := newWorld(t, worldConfig{})
	if _, err := without.s.Reselect(d); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("Reselect without the cluster: %v", err)
	}
}

// tenant is the key of a value that one filter hands down to others.
type tenant struct{}

func TestValuesReachLaterFiltersAndThePicker(t *testing.T) {
	t.Parallel()
	seen := ""
	w := newWorld(t, worldConfig{
		listener: chainOf(
			filterOf("sets", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				return next.NewStream(context.WithValue(ctx, tenant{}, "acme"), rpc)
			}),
			filterOf("reads", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				seen, _ = ctx.Value(tenant{}).(string)
				return next.NewStream(ctx, rpc)
			})),
	})
	given := mustUnary(t, t.Context(), w.s, "/s/m")
	picked, ok := given.Value(tenant{}).(string)
	if seen != "acme" || picked != "acme" || !ok {
		t.Errorf("the filter sees %q, the picker %q", seen, picked)
	}
}

// configurable is a filter that reports configuration and override.
type configurable struct {
	mu    sync.Mutex
	built []string
}

func (c *configurable) entry(name string, config string, disabled bool) httpfilter.Instance {
	return httpfilter.Instance{Name: name, Config: config, Disabled: disabled, Filter: &testFilter{
		typeURL: "type.googleapis.com/test.Configurable",
		build: func(name string) httpfilter.ClientInstance {
			return instanceFunc(func(config, override httpfilter.Config) (httpfilter.Interceptor, error) {
				text := fmt.Sprintf("%s:%v:%v", name, config, override)
				c.mu.Lock()
				c.built = append(c.built, text)
				c.mu.Unlock()
				if override == "broken" {
					return nil, errors.New("cannot be merged")
				}
				return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
					return next.NewStream(metadata.AppendToOutgoingContext(ctx, "config", text), rpc)
				}), nil
			})
		},
	}}
}

func override(value string) xdsresource.FilterOverride {
	return xdsresource.FilterOverride{Filter: &testFilter{typeURL: "type.googleapis.com/test.Configurable"}, Config: value}
}

// TestTheMostSpecificOverrideIsUsed: gRFC A39, "Filter Config Overrides".
func TestTheMostSpecificOverrideIsUsed(t *testing.T) {
	t.Parallel()
	type overrides = xdsresource.FilterOverrides
	disabled := xdsresource.FilterOverride{Disabled: true}
	otherType := xdsresource.FilterOverride{Filter: &testFilter{typeURL: "type.googleapis.com/test.Other"}, Config: "other"}
	for _, test := range []struct {
		name               string
		vh, route, cluster overrides
		want               []string
	}{
		{name: "none", want: []string{"a:A:<nil>", "b:B:<nil>"}},
		{name: "virtual host", vh: overrides{"a": override("vh")}, want: []string{"a:A:vh", "b:B:<nil>"}},
		{name: "route before virtual host", vh: overrides{"a": override("vh")}, route: overrides{"a": override("route")}, want: []string{"a:A:route", "b:B:<nil>"}},
		{name: "cluster weight before route", route: overrides{"a": override("route")}, cluster: overrides{"a": override("cluster")}, want: []string{"a:A:cluster", "b:B:<nil>"}},
		{name: "each instance its own", vh: overrides{"b": override("vh")}, route: overrides{"a": override("route")}, want: []string{"a:A:route", "b:B:vh"}},
		{name: "a name that no instance has", route: overrides{"c": override("route")}, want: []string{"a:A:<nil>", "b:B:<nil>"}},
		{name: "another type of filter", route: overrides{"a": otherType}, want: []string{"a:A:<nil>", "b:B:<nil>"}},
		{name: "disabled", route: overrides{"a": disabled}, want: []string{"b:B:<nil>"}},
		{name: "disabled and enabled again", vh: overrides{"a": disabled}, route: overrides{"a": override("route")}, want: []string{"a:A:route", "b:B:<nil>"}},
		{name: "disabled at the top and enabled", route: overrides{"off": override("route")}, want: []string{"a:A:<nil>", "b:B:<nil>", "off:OFF:route"}},
		{name: "enabled with the top's configuration", route: overrides{"off": {}}, want: []string{"a:A:<nil>", "b:B:<nil>", "off:OFF:<nil>"}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			var c configurable
			route := toC()
			route.Overrides = test.route
			route.Action.(*xdsresource.Forward).Clusters[0].Overrides = test.cluster
			w := newWorld(t, worldConfig{
				vh:       xdsresource.VirtualHost{Overrides: test.vh},
				routes:   []*xdsresource.Route{route},
				listener: chainOf(c.entry("a", "A", false), c.entry("b", "B", false), c.entry("off", "OFF", true)),
			})
			given := mustUnary(t, t.Context(), w.s, "/s/m")
			md, _ := metadata.FromOutgoingContext(given)
			xdstest.Equal(t, "filters", test.want, md["config"])
		})
	}
}

func TestAMergedConfigurationIsMadeOncePerDistinctCombination(t *testing.T) {
	t.Parallel()
	var c configurable
	var routes []*xdsresource.Route
	for i := range 100 {
		route := toC()
		if i%2 == 0 {
			route.Overrides = xdsresource.FilterOverrides{"a": override("x")}
		}
		routes = append(routes, route)
	}
	w := newWorld(t, worldConfig{routes: routes, listener: chainOf(c.entry("a", "A", false))})
	for range 10 {
		if _, err := unary(t.Context(), w.s, "/s/m"); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(c.built)
	xdstest.Equal(t, "built", []string{"a:A:<nil>", "a:A:x"}, c.built)
}
