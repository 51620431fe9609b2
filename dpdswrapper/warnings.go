package dpdswrapper

import (
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

// warnOfTypes warns of constraints in the bootstrap for types that are not of xDS. Those of a DPDS resource are in
// its Ignored, which xdsclient logs.
func warnOfTypes(cfg *bootstrap.Config) {
	for _, name := range cfg.Constraints.Types() {
		if known, _ := xdsname.CheckType(name); !known && name != dynparam.AnyType {
			logger.Warningf("xDS bootstrap %s: dynamic_parameter_constraints: %s", cfg.Source, xdsname.OfProgram(name))
		}
	}
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
