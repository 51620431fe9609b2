package inert

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
)

// gRFC A39: a filter "will also verify that the config is of the right type", top-level or override.
func TestEachConfigurationHasItsType(t *testing.T) {
	t.Parallel()
	for i := range filters {
		f := &filters[i]
		config, override := &anypb.Any{TypeUrl: f.config}, &anypb.Any{TypeUrl: f.override}
		if _, err := f.ParseConfig(config); err != nil {
			t.Errorf("%s: %v", f.config, err)
		}
		if f.override == "" {
			override = config
		} else {
			if _, err := f.ParseConfig(override); err == nil {
				t.Errorf("%s is accepted as a top-level configuration", f.override)
			}
			if _, err := f.ParseOverride(config); err == nil {
				t.Errorf("%s is accepted as an override", f.config)
			}
		}
		if _, err := f.ParseOverride(override); err != nil {
			t.Errorf("override %s: %v", override.GetTypeUrl(), err)
		}
	}
}
