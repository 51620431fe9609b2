package dnsconfig

import (
	"strings"
	"testing"
)

// TestAttributeSyntax is RFC 1464, section 2, with its examples.
func TestAttributeSyntax(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ record, name, value string }{
		{"color=blue", "color", "blue"},
		{"equation=a=4", "equation", "a=4"},
		{"a`=a=true", "a=a", "true"},
		{"a\\`=a=false", "a\\=a", "false"},
		{"`==\\=", "=", "\\="},
		{`string="Cat"`, "string", `"Cat"`},
		{"novalue=", "novalue", ""},
		{"a b=c d", "a b", "c d"},
		{"abc` =123 ", "abc ", "123 "},
		{"Favorite Drink=Earl Grey tea", "Favorite Drink", "Earl Grey tea"},
		// "Leading and trailing whitespace (spaces and tabs) in the attribute
		// name are ignored unless they are quoted".
		{" abc=x", "abc", "x"},
		{"\t abc \t=x", "abc", "x"},
		{"` abc=x", " abc", "x"},
		{"a``b=x", "a`b", "x"},
		// "All whitespace in the attribute value is returned".
		{"abc= \tx\t ", "abc", " \tx\t "},
		// "No characters need to be quoted": the value is as it stands.
		{"string2=``abc``", "string2", "``abc``"},
	} {
		name, value, ok := splitAttribute(test.record)
		if !ok || name != test.name || value != test.value {
			t.Errorf("%q: attribute %q, value %q (%v); want %q, %q", test.record, name, value, ok, test.name, test.value)
		}
	}
}

// TestRecordsWithoutAnAttributeAreIgnored is RFC 1464, section 2, "Attribute
// Name Matching Rules".
func TestRecordsWithoutAnAttributeAreIgnored(t *testing.T) {
	t.Parallel()
	for _, record := range []string{"", "no equals sign", "quoted`=only", "=null name", "  =null name", "`", strings.Repeat("x", 1000) + "=y"} {
		if name, value, ok := splitAttribute(record); ok {
			t.Errorf("%q: attribute %q, value %q", record, name, value)
		}
	}
}

func TestAttributeNameIsGrpcConfig(t *testing.T) {
	t.Parallel()
	const other = "v=spf1 include:_spf.example.com ~all"
	for _, test := range []struct {
		name    string
		records []string
		value   string
		found   bool
	}{
		{"no records", nil, "", false},
		{"another attribute", []string{other}, "", false},
		{"the attribute", []string{"grpc_config=[1]"}, "[1]", true},
		{"in any case", []string{"GRPC_Config=[1]"}, "[1]", true},
		{"with white space", []string{"  grpc_config\t=[1]"}, "[1]", true},
		{"with quoted characters", []string{"grpc`_config=[1]"}, "[1]", true},
		{"among others", []string{other, "grpc_config=[1]", "x=y"}, "[1]", true},
		{"longer name", []string{"grpc_config2=[1]", "xgrpc_config=[1]"}, "", false},
		{"quoted white space is of the name", []string{"` grpc_config=[1]"}, "", false},
		{"no value", []string{"grpc_config="}, "", true},
		{"the name alone", []string{"grpc_config"}, "", false},
	} {
		value, found, err := Find(test.records)
		if value != test.value || found != test.found || err != nil {
			t.Errorf("%s: %q, %v, %v; want %q, %v", test.name, value, found, err, test.value, test.found)
		}
	}
}

func TestSeveralRecordsWithTheAttributeAreAnErrorThatNamesThem(t *testing.T) {
	t.Parallel()
	_, found, err := Find([]string{"grpc_config=[1]", "x=y", "Grpc_Config=[2]"})
	if found || err == nil {
		t.Fatalf("found %v, error %v", found, err)
	}
	for _, text := range []string{"2 TXT records", `"grpc_config=[1]"`, `"Grpc_Config=[2]"`, "remove all but one"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error with %s", err, text)
		}
	}
	if strings.Contains(err.Error(), "x=y") {
		t.Errorf("%v names a record that is not at fault", err)
	}
}
