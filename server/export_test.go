package server

// StaleFields are those that the document describes and no type has.
func StaleFields() []string {
	types := make(schemas)
	paths(routes(), types)
	var stale []string
	for name, all := range fields {
		properties, _ := types[name]["properties"].(object)
		for field := range all {
			if properties[field] == nil {
				stale = append(stale, name+"."+field)
			}
		}
	}
	return stale
}
