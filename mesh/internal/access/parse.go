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
	checkFields(o, "san", "node", "names")
	if san, ok := o.Field("san").RequiredText("a SPIFFE ID"); ok {
		var err error
		if r.who, err = parseTemplate(san); err != nil {
			o.Field("san").Fault("", "%v", err)
		}
	}
	r.node = parseNode(o.Optional("node"), r.who)
	names := o.Optional("names")
	for _, item := range names.Elements("a list") {
		if prefix, ok := item.RequiredText(`a prefix ("" stands for all names)`); ok {
			checkPrefix(item, prefix)
			r.names = append(r.names, prefix)
		}
	}
	if !names.Present() || names.IsList() && len(names.Elements("a list")) == 0 {
		names.Fault(`a prefix "" stands for all names`, "empty")
	}
	return r
}

func parseNode(v jsondoc.Value, who template) (node []requirement) {
	o := v.Object()
	if !o.IsObject() {
		return nil
	}
	checkFields(o, "id", "cluster", "metadata")
	add := func(field, key string, v jsondoc.Value) {
		text, ok := v.RequiredText("a text")
		if !ok {
			return
		}
		want, err := parsePattern(text, who)
		if err != nil {
			v.Fault("", "%v", err)
		}
		node = append(node, requirement{field, key, want})
	}
	for _, field := range []string{"id", "cluster"} {
		if value := o.Field(field); !value.Absent() {
			add(field, "", value)
		}
	}
	for key, value := range o.Optional("metadata").Entries() {
		add("metadata", key, value)
	}
	if len(node) == 0 {
		v.Fault("", "needs id, cluster or metadata")
	}
	return node
}

// checkFields reports unknown fields, which would otherwise be ignored.
func checkFields(o jsondoc.Object, known ...string) {
	for _, name := range o.Names() {
		if !slices.Contains(known, name) {
			last := len(known) - 1
			o.Fault("the fields are "+strings.Join(known[:last], ", ")+" and "+known[last], "unknown field %s", faults.Quote(name))
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
