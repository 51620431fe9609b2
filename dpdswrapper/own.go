package dpdswrapper

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// configuredConstraints returns the constraints that a bootstrap gives: those
// translated from the node's metadata (TP2, "Migrating From Node Metadata"), for
// every type, and over them those that it spells out. The error has all faults.
func configuredConstraints(cfg *bootstrap.Config) (dynparam.ByType, error) {
	var faults []error
	fault := func(key string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("xDS bootstrap %s: %s: %w", cfg.Source, key, err))
		}
	}
	metadata, err := dynparam.FromNodeMetadata(cfg.Node.GetMetadata(), cfg.NodeMetadataConstraints)
	fault("node_metadata_constraints", err)
	translated, err := dynparam.NewByType(map[string]dynparam.Constraints{dynparam.AnyType: metadata})
	fault("node_metadata_constraints", err)
	types := make(map[string]dynparam.Constraints, len(cfg.ClientConstraints))
	for _, name := range slices.Sorted(maps.Keys(cfg.ClientConstraints)) {
		types[name], err = dynparam.ParseJSON(cfg.ClientConstraints[name])
		fault(fmt.Sprintf("dynamic_parameter_constraints[%q]", name), err)
	}
	spelledOut, err := dynparam.NewByType(types)
	fault("dynamic_parameter_constraints", err)
	return translated.Merge(spelledOut), errors.Join(faults...)
}
