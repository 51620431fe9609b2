package kubetest

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// oddObjects are templates of objects, in angle brackets, as objects are full of braces.
//
//go:embed odd.tmpl
var oddObjects string

// oddKinds are the kinds of odd objects, in their proportions.
var oddKinds = []string{
	"Service", "Service", "EndpointSlice", "EndpointSlice", "EndpointSlice", "HTTPRoute", "GRPCRoute", "MeshHTTPRoute", "MeshHTTPRoute", "ReferenceGrant",
}

// Odd returns a source of objects of random kinds in a namespace, with random values: most are odd, and the API server accepts most
// of them. Some are about the Service of another namespace, NAME.NAMESPACE. There are few names, so that objects replace one
// another.
func Odd(r *rand.Rand, namespace, service string) func() (*unstructured.Unstructured, error) {
	templates := template.New("").Delims("<", ">")
	// a is the text of a template.
	a := func(name string, of ...any) (string, error) {
		var text strings.Builder
		err := templates.ExecuteTemplate(&text, name, append(of, nil)[0])
		return text.String(), err
	}
	oneOf := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	template.Must(templates.Funcs(template.FuncMap{
		"a": a, "any": oneOf, "number": r.IntN, "repeat": strings.Repeat,
		// one is mostly the usual text: an object with many oddities would be refused as a whole.
		"one": func(usual string, odd ...string) string {
			if r.IntN(6) > 0 {
				return usual
			}
			return oneOf(odd...)
		},
		// some is a list of up to n texts of a template, seldom none. Each has its number, unless they are of something else.
		"some": func(n int, name string, of ...any) (string, error) {
			var list []string
			for i := range r.IntN(n) + min(r.IntN(10), 1) {
				text, err := a(name, append(of, i)...)
				if err != nil {
					return "", err
				}
				list = append(list, text)
			}
			return "[" + strings.Join(list, ", ") + "]", nil
		},
	}).Parse(oddObjects))
	name, of, _ := strings.Cut(service, ".")
	others := strings.NewReplacer("OTHER_NAMESPACE", of, "OTHER", name)
	return func() (*unstructured.Unstructured, error) {
		text, err := a(oneOf(oddKinds...))
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(others.Replace(text)), object); err != nil {
			return nil, fmt.Errorf("%w in %s", err, text)
		}
		object.SetNamespace(namespace)
		object.SetName(fmt.Sprint("odd-", r.IntN(4)))
		return object, nil
	}
}
