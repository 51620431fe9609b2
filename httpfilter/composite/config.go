package composite

import (
	"context"
	"fmt"
	"strings"

	xdscorepb "github.com/cncf/xds/go/xds/core/v3"
	matcherpb "github.com/cncf/xds/go/xds/type/matcher/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matchingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	actionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/unifiedmatcher"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/fraction"
)

// config is a valid xds_matcher. Without a tree, the filter does nothing.
type config struct {
	tree    *unifiedmatcher.Tree[*action]
	actions []*action
}

// action is what becomes of RPCs: a share of them goes through a chain. A SkipFilter has no share.
type action struct {
	index int    // in config.actions
	place string // its path
	share fraction.Fraction
	chain []httpfilter.Instance
}

// String says what the RPCs of its share meet.
func (a *action) String() string {
	if len(a.chain) == 0 {
		return a.place
	}
	var names []string
	for _, in := range a.chain {
		names = append(names, faults.Quote(in.Name))
	}
	return fmt.Sprintf("%s: filters %s", a.place, strings.Join(names, ", "))
}

// parser reads a configuration or an override. The tree of an override replaces the tree of the configuration.
type parser struct {
	*faults.Faults
	nested httpfilter.NestedParser
	config *config
}

func (p parser) parseConfig(pb *matchingpb.ExtensionWithMatcher) httpfilter.Config {
	if err := httpfilter.UnmarshalConfig(pb.GetExtensionConfig().GetTypedConfig(), new(filterpb.Composite)); err != nil {
		p.Addf(faults.Field("extension_config").Field("typed_config"), "must be a Composite: %v", err)
		return nil
	}
	//lint:ignore SA1019 A filter must not be left out because its matcher is in the deprecated field.
	if pb.GetMatcher() != nil && pb.GetXdsMatcher() == nil {
		p.Addf(faults.Field("matcher"), "is not supported: use xds_matcher")
		return nil
	}
	return p.parseTree(pb.GetXdsMatcher())
}

func (p parser) parseTree(pb *matcherpb.Matcher) httpfilter.Config {
	if pb != nil {
		p.config.tree = unifiedmatcher.Parse(faults.Field("xds_matcher"), pb, p.action, p.Faults)
	}
	return p.config
}

// action reads a SkipFilter or an ExecuteFilterAction.
func (p parser) action(at *faults.Path, pb *xdscorepb.TypedExtensionConfig) *action {
	a := &action{index: len(p.config.actions), place: at.String()}
	p.config.actions = append(p.config.actions, a)
	at = at.Field("typed_config")
	config := pb.GetTypedConfig()
	if config.MessageIs(new(actionpb.SkipFilter)) {
		return a
	}
	execute := new(filterpb.ExecuteFilterAction)
	if err := httpfilter.UnmarshalConfig(config, execute); err != nil {
		p.Addf(at, "must be a SkipFilter or an ExecuteFilterAction: %v", err)
		return a
	}
	a.share = fraction.ReadRuntime(at.Field("sample_percent"), execute.GetSamplePercent(), p.Faults)
	switch filters := execute.GetFilterChain(); {
	case filters != nil:
		at = at.Field("filter_chain")
		if n := len(filters.GetTypedConfig()); n > bounds.HTTPFilters {
			p.Addf(at.Field("typed_config"), "has %d entries, more than the %d that this client takes", n, bounds.HTTPFilters)
			return a
		}
		for i, config := range filters.GetTypedConfig() {
			p.filter(at.Item("typed_config", i), config, a)
		}
	case execute.GetTypedConfig() != nil:
		p.filter(at.Field("typed_config"), execute.GetTypedConfig(), a)
	default:
		p.Addf(at, "typed_config or filter_chain must be set; this client knows neither dynamic_config nor filter_chain_name")
	}
	return a
}

func (p parser) filter(at *faults.Path, pb *corepb.TypedExtensionConfig, a *action) {
	if p.nested == nil {
		p.Addf(at, "the configuration was read without what reads those inside it")
		return
	}
	in, err := p.nested(pb.GetName(), pb.GetTypedConfig())
	if err != nil {
		p.Addf(at.Field("typed_config"), "%v", err)
		return
	}
	a.chain = append(a.chain, in)
}

// Ends returns how many percent of RPCs like this one the filter ends, or the first inside that ends some, and with which code.
// Explanations of RPCs call it.
func (c *config) Ends(ctx context.Context, rpc *httpfilter.RPC) (percent float64, code codes.Code) {
	if c.tree == nil {
		return 0, codes.OK
	}
	a, ok := c.tree.Match(ctx, rpc)
	if !ok {
		return 100, codes.Unavailable
	}
	for _, in := range a.chain {
		inner, ok := in.Config.(interface {
			Ends(context.Context, *httpfilter.RPC) (float64, codes.Code)
		})
		if !ok {
			continue
		}
		if percent, code = inner.Ends(ctx, rpc); percent > 0 && a.share.Numerator > 0 {
			return percent * float64(a.share.Numerator) / float64(a.share.Denominator), code
		}
	}
	return 0, codes.OK
}

// Chooses returns in words what becomes of an RPC. Explanations of RPCs call it.
func (c *config) Chooses(ctx context.Context, rpc *httpfilter.RPC) string {
	if c.tree == nil {
		return "there is no tree, so RPCs pass"
	}
	a, ok := c.tree.Match(ctx, rpc)
	switch {
	case !ok:
		return "no action, so the RPC fails with UNAVAILABLE"
	case a.share.Numerator == 0 || len(a.chain) == 0:
		return a.place + ": the RPC passes"
	}
	text := a.String()
	if a.share.Numerator < a.share.Denominator {
		text += fmt.Sprintf(", for %d of %d RPCs", a.share.Numerator, a.share.Denominator)
	}
	for _, in := range a.chain {
		if inner, ok := in.Config.(*config); ok {
			text += "; in " + faults.Quote(in.Name) + ", " + inner.Chooses(ctx, rpc)
		}
	}
	return text
}
