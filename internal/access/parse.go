package access

import (
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// Parse reads Rules from JSON; see controlplane.ParseAccess.
func Parse(data []byte) (Rules, error) {
	var a Rules
	found := &faults.Faults{Source: "access"}
	if list, err := jsondoc.Parse(data, found); err != nil {
		found.Addf(nil, "%v", err)
	} else {
		rules := list.Elements("a list of rules")
		for _, of := range rules {
			a.rules = append(a.rules, parseRule(of))
		}
		if list.IsList() && len(rules) == 0 {
			list.Fault("", "there is no rule, so no client may subscribe to anything")
		}
	}
	if err := found.Err(); err != nil {
		return Rules{}, err
	}
	return a, nil
}

func parseRule(v jsondoc.Value) (r rule) {
	o := v.Object()
	if !o.IsObject() {
		return r
	}
	checkFields(v, o, "san", "token", "node", "names")
	var san string
	san, r.token = o.Field("san").Text(), o.Field("token").Text()
	if o.Field("san").Absent() == o.Field("token").Absent() || san == "" && o.Field("san").IsText() || r.token == "" && o.Field("token").IsText() {
		v.Fault("", "needs either san or token")
	}
	if san == "*" {
		o.Field("san").Fault("name what they have in common", `"*" is every certificate`)
	}
	r.san = parsePatternOf(o.Field("san"), nil)
	known := slices.Collect(r.san.placeholders)
	if known == nil {
		known = []string{}
	}
	if node := o.Field("node"); !node.Absent() {
		r.node = parseNode(node, known)
	}
	for _, item := range o.Field("names").Items() {
		if prefix, ok := item.RequiredText(`a prefix ("" stands for all names)`); ok {
			checkPrefix(item, prefix)
			r.names = append(r.names, prefix)
		}
	}
	if names := o.Field("names"); names.Absent() || names.IsList() && len(names.Items()) == 0 {
		names.Fault(`a prefix "" stands for all names`, "empty")
	}
	return r
}

// parsePatternOf reads a pattern. Its placeholders have to be known, unless known is nil.
func parsePatternOf(v jsondoc.Value, known []string) pattern {
	p, err := parsePattern(v.Text())
	if err == nil && known == nil {
		err = p.definite()
	}
	if err != nil {
		v.Fault("", "%v", err)
		return p
	}
	for name := range p.placeholders {
		if known != nil && !slices.Contains(known, name) {
			v.Fault("the placeholders are those of san", "{%s} is no placeholder", name)
		}
	}
	return p
}

func parseNode(v jsondoc.Value, known []string) (r nodeRule) {
	o := v.Object()
	if !o.IsObject() {
		return r
	}
	checkFields(v, o, "id", "cluster", "metadata")
	if id := o.Field("id"); !id.Absent() {
		p := parsePatternOf(id, known)
		r.id = &p
	}
	if cluster := o.Field("cluster"); !cluster.Absent() {
		p := parsePatternOf(cluster, known)
		r.cluster = &p
	}
	if metadata := o.Field("metadata"); !metadata.Absent() {
		r.metadata = map[string]pattern{}
		for key, value := range metadata.Entries() {
			if _, ok := value.RequiredText("a text"); ok {
				r.metadata[key] = parsePatternOf(value, known)
			}
		}
	}
	if r.id == nil && r.cluster == nil && len(r.metadata) == 0 {
		v.Fault("", "needs id, cluster or metadata")
	}
	return r
}

// checkFields reports unknown fields, which would otherwise be ignored.
func checkFields(v jsondoc.Value, o jsondoc.Object, known ...string) {
	for _, name := range o.Names() {
		if !slices.Contains(known, name) {
			last := len(known) - 1
			v.Fault("the fields are "+strings.Join(known[:last], ", ")+" and "+known[last], "unknown field %s", faults.Quote(name))
		}
	}
}

// checkPrefix reports a prefix that covers other names than its author can mean.
func checkPrefix(v jsondoc.Value, prefix string) {
	authority, newStyle := strings.CutPrefix(prefix, xdsname.Prefix+"//")
	switch {
	case newStyle && authority != "" && !strings.Contains(authority, "/"):
		v.Fault("", `%q needs "/" behind the authority, without which it is also the prefix of other authorities`, prefix)
	case strings.HasSuffix(prefix, "*"):
		v.Fault(`leave it out; a prefix "" stands for all names`, `%q ends with "*", but names are prefixes`, prefix)
	}
}
