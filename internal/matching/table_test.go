package matching

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
)

func regex(pattern string) Route {
	re, err := CompileRegex(pattern, true, nil)
	if err != nil {
		panic(err)
	}
	return Route{PathKind: PathRegex, Further: &Conditions{Regex: re}}
}

func exact(name, value string) Header {
	return Header{Name: name, String: String{Kind: StringExact, Value: value}}
}

func present(name string, present bool) Header {
	return Header{Name: name, Kind: HeaderPresent, Invert: !present}
}

func inverted(h Header) Header {
	h.Invert = true
	return h
}

func TestRoutesByHeaderValueKeepTheirOrder(t *testing.T) {
	t.Parallel()
	// Given routes with one header, with several, and others between them; then the first match wins.
	match := func(h ...Header) Route {
		return Route{Path: "/", Further: &Conditions{Headers: h}}
	}
	routes := []Route{
		match(present("first", true)),
		match(exact("a", "1"), exact("b", "1")),
		match(exact("b", "1")),
		match(inverted(exact("c", "1"))),
		match(exact("a", "1")),
		match(exact("c", "1")),
		match(exact("d", "1")),
		match(exact("e", "1"), present("x", true)),
		match(exact("f", "1")),
		match(exact("a", "1,2")),
		match(present("a", true), exact("b", "2")),
		match(exact(":authority", "h")),
		{Path: "/", Further: &Conditions{Headers: []Header{exact("a", "9")}, FractionPerMillion: new(uint32)}},
		{Path: "/", Further: &Conditions{Headers: []Header{exact("a", "9")}, Query: []Query{{Name: "q", Present: true}}}},
		match(exact("a", "9")),
	}
	table := NewTable(len(routes), func(i int32) *Route { return &routes[i] })
	with := func(pairs ...string) context.Context { return metadata.AppendToOutgoingContext(t.Context(), pairs...) }
	for want, rpc := range map[int]RPC{
		0:  {Context: with("first", "", "a", "1", "b", "1")},
		1:  {Context: with("a", "1", "b", "1")},
		2:  {Context: with("b", "1", "c", "2")},
		3:  {Context: with("a", "1", "c", "2")},
		4:  {Context: with("a", "1", "c", "1")},
		5:  {Context: with("c", "1", "f", "1")},
		6:  {Context: with("d", "1", "f", "1")},
		7:  {Context: with("e", "1", "f", "1", "x", "")},
		8:  {Context: with("e", "1", "f", "1")},
		9:  {Context: with("a", "1", "a", "2")},
		10: {Context: with("a", "3", "b", "2")},
		11: {Authority: "h"},
		13: {Method: "/s/m?q", Context: with("a", "9")},
		14: {Context: with("a", "9")},
		-1: {},
	} {
		if rpc.Method == "" {
			rpc.Method = "/s/m"
		}
		if got := int(table.Find(&rpc)); got != want {
			t.Errorf("want route %d, got %d", want, got)
		}
	}
}
