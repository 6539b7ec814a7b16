#!/bin/bash
cat > sizes.sh <<'END'
#!/bin/bash
# Sizes of the files in a folder.
total=0
while IFS= read -r -d '' name; do
  size=$(wc -c < "$1/$name")
  echo "$size $name"
  total=$((total + size))
done < <(find "$1" -mindepth 1 -maxdepth 1 -type f -printf '%f\0' | LC_ALL=C sort -z)
echo "$total total"
END
