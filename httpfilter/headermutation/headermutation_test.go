package headermutation

import (
	"strings"
	"testing"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func set(name, value string) *mutationpb.HeaderMutation {
	return &mutationpb.HeaderMutation{Action: &mutationpb.HeaderMutation_Append{Append: &corepb.HeaderValueOption{
		Header: &corepb.HeaderValue{Key: name, Value: value}, AppendAction: corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}

// Each RPC goes through the mutations.
func TestMutationsAreLimited(t *testing.T) {
	t.Parallel()
	parse := func(n int) error {
		mutations := make([]*mutationpb.HeaderMutation, n)
		for i := range mutations {
			mutations[i] = set("a", "b")
		}
		_, err := filter{}.ParseConfig(xdsmsg.Any(&filterpb.HeaderMutation{Mutations: &filterpb.Mutations{ResponseMutations: mutations}}))
		return err
	}
	xdstest.NoError(t, parse(bounds.HeaderEdits))
	if err := parse(bounds.HeaderEdits + 1); err == nil || !strings.Contains(err.Error(), "mutations.response_mutations has 1001 entries, more than the 1000") {
		t.Errorf("got error %v", err)
	}
}
