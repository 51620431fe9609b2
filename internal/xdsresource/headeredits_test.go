package xdsresource

import (
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func TestHeaderEditsDoNotShareValues(t *testing.T) {
	t.Parallel()
	edits := decodeRoutes(t, withText(t, xdsmsg.PrefixRoute("/", "a"), `request_headers_to_add{header{key:"h" value:"v"}}`)).Routes[0].Headers.Request
	first, second := metadata.MD{}, metadata.MD{}
	edits.Apply(first)
	first["h"][0] = "changed"
	edits.Apply(second)
	if second["h"][0] != "v" {
		t.Error("whoever got a value has changed it for all")
	}
}

func TestLevelsWithoutEditsShareThoseAbove(t *testing.T) {
	t.Parallel()
	config := routeConfig(xdsmsg.PrefixRoute("/a", "a"), xdsmsg.PrefixRoute("/b", "b"))
	config.ResponseHeadersToRemove = []string{"h"}
	config.VirtualHosts = append(config.VirtualHosts, &routepb.VirtualHost{Domains: []string{"x"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "c")}})
	hosts := mustDecodeRoutes(t, config).VirtualHosts
	if m := hosts[0].Routes[0].Headers; m == nil || m != hosts[0].Routes[1].Headers || m != hosts[1].Routes[0].Headers {
		t.Error("routes without edits of their own do not share one value")
	}
	if m := decodeRoutes(t, xdsmsg.PrefixRoute("/", "a")).Routes[0].HeadersFor(nil); m != nil {
		t.Errorf("HeadersFor = %v without any edits, want nil", m)
	}
}
