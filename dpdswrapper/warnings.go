package dpdswrapper

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Constraints without effect are no error: watches get resources, but not the intended ones.
// So the log warns of them.

// strangeTypes lists the types of constraints that are no resource types of xDS, or returns "".
func strangeTypes(constraints dynparam.ByType) string {
	const limit = 10
	var list []string
	more := 0
	for _, name := range constraints.Types() {
		known, err := xdsname.CheckType(name)
		switch {
		case known && err == nil, name == dynparam.AnyType:
			continue
		case len(list) == limit:
			more++
		case err != nil:
			list = append(list, err.Error())
		default:
			list = append(list, fmt.Sprintf("found %s, which is no resource type of xDS: the constraints only apply if the program watches it with an xdsclient.ResourceType of its own", faults.Quote(name)))
		}
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// warnOfServers warns of management servers that do not support the constraints of DPDS for
// their resources.
func warnOfServers(cfg *bootstrap.Config) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Authorities)) {
		a := cfg.Authorities[name]
		if plain := without(a.Servers); a.DynamicParameterConstraintsResource != "" && len(plain) > 0 {
			logger.Warningf("xDS bootstrap %s: authority %s has DPDS resource %q, but not all of its management servers have %s in server_features: resources are requested without its constraints while one of these is in use: %s",
				cfg.Source, faults.Quote(name), a.DynamicParameterConstraintsResource, bootstrap.FeatureDynamicParameterConstraints, strings.Join(plain, ", "))
		}
	}
}

// warnOfOwn warns of management servers that do not support the client's own constraints. what names
// these. Authorities of which warnOfServers warns are left out.
func warnOfOwn(cfg *bootstrap.Config, what string) {
	warn := func(whose string, servers []*bootstrap.Server) {
		if plain := without(servers); len(plain) == len(servers) {
			logger.Warningf("xDS bootstrap %s: no management server of %s (%s) has %s in server_features: %s have no effect there",
				cfg.Source, whose, strings.Join(plain, ", "), bootstrap.FeatureDynamicParameterConstraints, what)
		}
	}
	warn("old-style names", cfg.Servers)
	for _, name := range slices.Sorted(maps.Keys(cfg.Authorities)) {
		if a := cfg.Authorities[name]; a.DynamicParameterConstraintsResource == "" && !slices.Equal(a.Servers, cfg.Servers) {
			warn("authority "+faults.Quote(name), a.Servers)
		}
	}
}

// without returns the servers that do not support constraints.
func without(servers []*bootstrap.Server) (plain []string) {
	for _, s := range servers {
		if !s.HasFeature(bootstrap.FeatureDynamicParameterConstraints) {
			plain = append(plain, s.URI)
		}
	}
	return plain
}
