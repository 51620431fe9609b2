package site

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// manifest is a resource as a document of a folder, or the error in its place.
type manifest struct {
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	Type       string            `json:"typeUrl,omitempty"`
	Parameters map[string]string `json:"dynamicParameters,omitempty"`
	Resource   map[string]any    `json:"resource,omitempty"`
	Code       string            `json:"code,omitempty"`
	Message    string            `json:"message,omitempty"`
}

func manifestsOf(items []Item) ([]any, error) {
	var all []any
	for _, item := range items {
		m := manifest{Kind: "Resource", Name: item.Name, Parameters: item.Parameters}
		if item.Err != nil {
			m.Kind, m.Type, m.Code, m.Message = "Error", item.TypeURL, item.Err.Code().String(), item.Err.Message()
		} else {
			text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(item.Resource.Any())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", item.Name, err)
			}
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.UseNumber()
			if err := decoder.Decode(&m.Resource); err != nil {
				return nil, err
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// PrintYAML writes resources as documents of a folder.
func PrintYAML(w io.Writer, items []Item) error {
	all, err := manifestsOf(items)
	if err != nil {
		return err
	}
	return WriteYAML(w, all...)
}

// WriteYAML writes values as documents, with the names and the order of their JSON. Texts that are not printable are in double quotes,
// so that escapes can take the place of their characters.
func WriteYAML(w io.Writer, values ...any) error {
	if len(values) == 0 {
		return nil // an encoder without a document fails
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	for _, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		var node yaml.Node
		if err := yaml.Unmarshal(text, &node); err != nil { // JSON is YAML
			return err
		}
		block(&node)
		if err := encoder.Encode(&node); err != nil {
			return err
		}
	}
	return encoder.Close()
}

// block removes the style of JSON, but for texts that are not printable.
func block(node *yaml.Node) {
	node.Style = 0
	if node.Kind == yaml.ScalarNode && strings.ContainsFunc(node.Value, func(c rune) bool { return !unicode.IsPrint(c) && c != '\n' }) {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		block(child)
	}
}

// PrintJSON writes one resource per line.
func PrintJSON(w io.Writer, items []Item) error {
	all, err := manifestsOf(items)
	encoder := json.NewEncoder(w)
	for _, d := range all {
		if err == nil {
			err = encoder.Encode(d)
		}
	}
	return err
}
