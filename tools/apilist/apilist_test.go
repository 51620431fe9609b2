package main

import (
	"slices"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	got, err := load("testdata/house")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"room: const Limit untyped int",
		"room: func (*Door).Close()",
		"room: func (*Door).Lock(k example.com/house/internal/hidden.Key)",
		"room: func New() *Door",
		"room: type Door struct{Open bool}",
		"room: type Key = example.com/house/internal/hidden.Key",
		"room: type Opener interface{Keys() []example.com/house/internal/hidden.Key}",
		"room: var Err error",
	}
	if !slices.Equal(got.lines, want) || got.packages != 1 {
		t.Errorf("load: %d packages with\n%s\nwant 1 with\n%s", got.packages, strings.Join(got.lines, "\n"), strings.Join(want, "\n"))
	}
	unusable := []string{want[2] + " (example.com/house/internal/hidden.Key)"}
	if !slices.Equal(got.unusable, unusable) {
		t.Errorf("unusable:\n%s\nwant\n%s", strings.Join(got.unusable, "\n"), strings.Join(unusable, "\n"))
	}
}

func TestDifference(t *testing.T) {
	if got, want := difference("a\nb\nc\n", "a\nc\nd\n"), "-b\n+d\n"; got != want {
		t.Errorf("difference = %q, want %q", got, want)
	}
	if got := difference("a\n", "a\n"); got != "" {
		t.Errorf("difference of equal lists = %q, want none", got)
	}
}
